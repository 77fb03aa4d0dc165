//! What answers have beside text, reasoning and calls.

use serde_json::{Value, json};
use tower_agent::message::MediaSource;
use tower_agent::{Message, ModelRequest, ModelResponse, Part, Settings};

use crate::server::{Reply, Server, delta, events, finished, json as reply, says};
use test_support::{call, stream};

/// Reads the answer as a whole or streamed, and returns it with the message of the next request.
async fn answered(answer: Reply, settings: Settings, streamed: bool) -> (ModelResponse, Value) {
    let server = Server::start([answer, says("ok")]).await;
    let request = ModelRequest::new([Message::user("hi")]).with_settings(settings);
    let response = if streamed {
        stream(server.model(), request).await.0
    } else {
        call(server.model(), request).await
    };
    let response = response.unwrap();
    let next = [Message::user("hi"), response.message().clone()];
    call(server.model(), ModelRequest::new(next)).await.unwrap();
    let sent = server.seen()[1].body["messages"][1].clone();
    (response, sent)
}

fn plain(message: Value) -> Reply {
    reply(
        200,
        &json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }),
    )
}

fn about(response: &ModelResponse) -> &Value {
    &response.message().provider().get("openai").unwrap()["response"]
}

/// OpenAI's API reference.
#[tokio::test]
async fn a_spoken_answer_is_its_transcript_and_audio() {
    let audio =
        json!({ "id": "audio_1", "expires_at": 17, "data": "UklGRg", "transcript": "Hi there." });
    let whole = plain(json!({ "role": "assistant", "content": null, "audio": audio }));
    let pieces = events(&[
        delta(json!({ "audio": { "id": "audio_1", "transcript": "Hi " } })),
        delta(json!({ "audio": { "transcript": "there.", "data": "UklG" } })),
        delta(json!({ "audio": { "data": "Rg" } })),
        delta(json!({ "audio": { "expires_at": 17 } })),
        finished("stop"),
    ]);
    for (answer, streamed) in [(whole, false), (pieces, true)] {
        let mut settings = Settings::default();
        settings
            .extra
            .insert("audio".into(), json!({ "format": "mp3" }));
        let (response, sent) = answered(answer, settings, streamed).await;
        assert_eq!(response.text(), "Hi there.");
        let [Part::Text(_), Part::Audio(audio)] = response.message().parts() else {
            panic!("{response:?}");
        };
        assert_eq!(audio.source, MediaSource::base64("audio/mpeg", "UklGRg"));
        let data = json!({ "id": "audio_1", "expires_at": 17 });
        assert_eq!(audio.provider.get("openai"), Some(&data));
        assert_eq!(sent, json!({ "role": "assistant", "content": "Hi there." }));
    }
}

#[tokio::test]
async fn audio_whose_pieces_are_padded_is_several_parts() {
    let pieces =
        ["UklGRg==", "AAAA", "BB=="].map(|data| delta(json!({ "audio": { "data": data } })));
    let answer = events(&[&pieces[..], &[finished("stop")]].concat());
    let (response, _) = answered(answer, Settings::default(), true).await;
    let sources = response.message().parts().iter().map(|part| match part {
        Part::Audio(audio) => audio.source.clone(),
        part => panic!("{part:?}"),
    });
    let wav = |data| MediaSource::base64("audio/wav", data);
    assert!(sources.eq([wav("UklGRg=="), wav("AAAABB==")]));
}

/// OpenRouter's guide on the generation of images.
#[tokio::test]
async fn images_are_parts_and_go_back_as_they_came() {
    let images = json!([
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,iVBO" } },
        { "type": "image_url", "image_url": { "url": "https://a.example/b.png" } },
    ]);
    let whole = plain(json!({ "role": "assistant", "content": "Here.", "images": images }));
    let pieces = events(&[
        delta(json!({ "content": "Here.", "images": [images[0]] })),
        delta(json!({ "content": "", "images": [images[1]] })),
        finished("stop"),
    ]);
    for (answer, streamed) in [(whole, false), (pieces, true)] {
        let (response, sent) = answered(answer, Settings::default(), streamed).await;
        let [Part::Text(text), Part::Image(first), Part::Image(second)] =
            response.message().parts()
        else {
            panic!("{response:?}");
        };
        assert_eq!(text.text, "Here.");
        assert_eq!(first.source, MediaSource::base64("image/png", "iVBO"));
        assert_eq!(second.source, MediaSource::url("https://a.example/b.png"));
        let expected = json!({ "role": "assistant", "content": "Here.", "images": images });
        assert_eq!(sent, expected);
    }
}

/// pydantic/pydantic-ai (OpenRouter, Perplexity, Groq) and OpenAI's API reference.
#[tokio::test]
async fn facts_about_an_answer_are_kept_with_its_message_and_not_sent_back() {
    let citation =
        json!({ "type": "url_citation", "url_citation": { "url": "https://a.example" } });
    let ran = json!({ "type": "python", "output": "4" });
    let one = json!({ "token": "a", "logprob": -0.1 });
    let two = json!({ "token": "b", "logprob": -0.2 });
    let other = json!({ "index": 1, "message": { "content": "Or c." }, "finish_reason": "stop" });
    let whole = json!({
        "citations": ["https://a.example"],
        "search_results": [{ "title": "A" }],
        "choices": [other, {
            "index": 0,
            "message": { "content": "ab", "annotations": [citation], "executed_tools": [ran] },
            "logprobs": { "content": [one, two], "refusal": null },
            "finish_reason": "stop",
        }],
    });
    let chunk = |delta: Value, logprob: &Value| {
        json!({
            "citations": ["https://a.example"],
            "search_results": [{ "title": "A" }],
            "choices": [{ "index": 0, "delta": delta, "logprobs": { "content": [logprob] } }],
        })
    };
    let pieces = events(&[
        chunk(json!({ "content": "a", "executed_tools": [ran] }), &one),
        chunk(json!({ "content": "b", "annotations": [citation] }), &two),
        json!({ "choices": [other] }),
        finished("stop"),
    ]);
    for (answer, streamed) in [(reply(200, &whole), false), (pieces, true)] {
        let (response, sent) = answered(answer, Settings::default(), streamed).await;
        let expected = json!({
            "citations": ["https://a.example"],
            "search_results": [{ "title": "A" }],
            "annotations": [citation],
            "executed_tools": [ran],
            "logprobs": { "content": [one, two] },
            "choices": [other],
        });
        assert_eq!(about(&response), &expected);
        assert_eq!(response.text(), "ab");
        assert_eq!(sent, json!({ "role": "assistant", "content": "ab" }));
    }
}

/// Snowflake sends empty objects, and OpenAI empty lists.
#[tokio::test]
async fn empty_facts_are_none() {
    let message = json!({ "content": "ok", "annotations": [], "audio": {}, "images": null });
    let (response, _) = answered(plain(message), Settings::default(), false).await;
    assert_eq!(response.message(), &Message::assistant("ok"));
}
