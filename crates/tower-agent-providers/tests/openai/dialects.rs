//! Servers that answer otherwise than OpenAI. Each fixture is cut down from a recorded answer, whose
//! origin stands beside it.

use serde_json::{Value, json};
use tower_agent::model::FinishReason;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Usage};

use crate::server::{Server, delta, events, finished, json as reply, unfinished};
use test_support::{call, deltas, stream, text};

async fn plain(body: Value) -> Result<ModelResponse, Error> {
    let server = Server::start([reply(200, &body)]).await;
    call(server.model(), ModelRequest::default()).await
}

async fn streamed(chunks: &[Value]) -> Result<ModelResponse, Error> {
    let server = Server::start([events(chunks)]).await;
    stream(server.model(), ModelRequest::default()).await.0
}

fn says(content: Value) -> Value {
    json!({ "choices": [{ "index": 0, "message": { "role": "assistant", "content": content } }] })
}

fn thinks_and_says(thought: &str, answer: &str) -> Message {
    Message::new(
        Role::Assistant,
        [Part::reasoning(thought), Part::from_text(answer)],
    )
}

/// 0xPlaygrounds/rig, `perplexity/`.
#[tokio::test]
async fn perplexity_sends_an_empty_delta_beside_the_message() {
    let choice = json!({
        "index": 0,
        "delta": { "role": "assistant", "content": "" },
        "message": { "role": "assistant", "content": "Paris." },
        "finish_reason": "stop",
    });
    let response = plain(json!({ "choices": [choice] })).await.unwrap();
    assert_eq!(response.message(), &Message::assistant("Paris."));
}

/// 0xPlaygrounds/rig, `perplexity/`.
#[tokio::test]
async fn perplexity_sends_the_message_so_far_beside_each_delta() {
    let chunk = |piece: &str, whole: &str| {
        json!({ "choices": [{
            "index": 0,
            "delta": { "role": "assistant", "content": piece },
            "message": { "role": "assistant", "content": whole },
            "finish_reason": null,
        }] })
    };
    let mut last = chunk("", "Paris.");
    last["choices"][0]["finish_reason"] = "stop".into();
    let server =
        Server::start([events(&[chunk("Par", "Par"), chunk("is.", "Paris."), last])]).await;
    let (response, told) = stream(server.model(), ModelRequest::default()).await;
    assert_eq!(response.unwrap().text(), "Paris.");
    assert_eq!(deltas(told), [text("Par"), text("is.")]);
}

/// pydantic/pydantic-ai, `test_mistral_model_thinking_part` and `.._iter`.
#[tokio::test]
async fn mistral_sends_its_thoughts_as_chunks_of_the_content() {
    let thinking = |thought: &str| json!({ "type": "thinking", "thinking": [{ "type": "text", "text": thought }] });
    let said = json!({ "type": "text", "text": "Look both ways." });
    let expected = thinks_and_says("Okay, the user", "Look both ways.");

    let whole = says(json!([thinking("Okay, the user"), said]));
    assert_eq!(plain(whole).await.unwrap().message(), &expected);

    let chunks = [
        delta(json!({ "content": [thinking("Okay")] })),
        delta(json!({ "content": [thinking(", the user")] })),
        delta(json!({ "content": [{ "type": "text", "text": "Look " }] })),
        delta(json!({ "content": "both ways." })),
        finished("stop"),
    ];
    assert_eq!(streamed(&chunks).await.unwrap().message(), &expected);
}

#[tokio::test]
async fn a_thought_that_is_plain_text_and_parts_of_other_kinds() {
    let content = json!([
        { "type": "thinking", "thinking": "hm" },
        { "type": "reference", "reference_ids": [1] },
        "yes",
        { "type": "text", "text": "!" },
    ]);
    let response = plain(says(content)).await.unwrap();
    assert_eq!(response.message(), &thinks_and_says("hm", "yes!"));
}

#[tokio::test]
async fn usage_that_is_counted_in_other_ways() {
    let mut xai = Usage::new(12, 291);
    xai.reasoning_tokens = 290;
    let mut openai = Usage::new(12, 300);
    openai.reasoning_tokens = 290;
    let mut cached = Usage::new(100, 2);
    cached.cached_input_tokens = 64;
    for (usage, expected) in [
        // vercel/ai, `xai-*.json`: the completion leaves the reasoning out.
        (
            json!({
                "prompt_tokens": 12, "completion_tokens": 1, "total_tokens": 303,
                "completion_tokens_details": { "reasoning_tokens": 290 },
            }),
            xai,
        ),
        (
            json!({
                "prompt_tokens": 12, "completion_tokens": 300, "total_tokens": 312,
                "completion_tokens_details": { "reasoning_tokens": 290 },
            }),
            openai,
        ),
        // A server that says no total is taken at its word.
        (
            json!({
                "prompt_tokens": 12, "completion_tokens": 300,
                "completion_tokens_details": { "reasoning_tokens": 290 },
            }),
            openai,
        ),
        // pydantic/pydantic-ai, `test_tool_choice_matrix`: Mistral.
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 2, "num_cached_tokens": 64 }),
            cached,
        ),
        // pydantic/pydantic-ai, Moonshot.
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 2, "cached_tokens": 64 }),
            cached,
        ),
        // 0xPlaygrounds/rig, `deepseek/`.
        (
            json!({
                "prompt_tokens": 100, "completion_tokens": 2,
                "prompt_cache_hit_tokens": 64, "prompt_cache_miss_tokens": 36,
                "prompt_tokens_details": { "cached_tokens": 64 },
            }),
            cached,
        ),
    ] {
        let mut body = says(json!("ok"));
        body["usage"] = usage.clone();
        assert_eq!(plain(body).await.unwrap().usage(), expected, "{usage}");
        let mut last = finished("stop");
        last["usage"] = usage.clone();
        let chunks = [delta(json!({ "content": "ok" })), last];
        assert_eq!(
            streamed(&chunks).await.unwrap().usage(),
            expected,
            "{usage}"
        );
    }
}

/// OpenRouterTeam/openrouter-examples#67.
#[tokio::test]
async fn an_answer_that_ended_with_an_error_is_none() {
    let mut whole = says(json!(""));
    whole["choices"][0]["finish_reason"] = "error".into();
    for result in [
        plain(whole).await,
        streamed(&[delta(json!({ "content": "Hel" })), finished("error")]).await,
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider);
        assert!(error.is_retryable());
    }
}

#[tokio::test]
async fn mistral_names_the_limit_of_the_model() {
    let mut whole = says(json!("Hel"));
    whole["choices"][0]["finish_reason"] = "model_length".into();
    let response = plain(whole).await.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::Length);
}

/// pydantic/pydantic-ai, `test_openrouter_errors_raised`.
#[tokio::test]
async fn openrouter_wraps_the_reason_of_the_server_behind_it() {
    let wrapped = |raw: Value| {
        json!({ "error": {
            "code": 429,
            "message": "Provider returned error",
            "metadata": { "provider_name": "Google", "raw": raw },
        } })
    };
    for (raw, message) in [
        (
            json!("rate-limited upstream"),
            "Provider returned error: Google: rate-limited upstream",
        ),
        (
            json!("{\"error\":{\"message\":\"quota\",\"code\":8}}"),
            "Provider returned error: Google: quota",
        ),
        (
            json!({ "error": { "message": "quota" } }),
            "Provider returned error: Google: quota",
        ),
        (Value::Null, "Provider returned error"),
    ] {
        let server = Server::start([reply(429, &wrapped(raw))]).await;
        let error = call(server.model(), ModelRequest::default())
            .await
            .unwrap_err();
        assert_eq!(error.message(), message);
        assert_eq!(error.kind(), ErrorKind::RateLimited);
    }
    // In a stream, after the first words.
    let mut chunk = wrapped(json!("rate-limited upstream"));
    chunk["choices"] =
        json!([{ "index": 0, "delta": { "content": "" }, "finish_reason": "error" }]);
    let error = streamed(&[delta(json!({ "content": "Hel" })), chunk])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RateLimited);
    assert_eq!(
        error.message(),
        "Provider returned error: Google: rate-limited upstream"
    );
}

/// A prompt that is too long for the server behind a gateway is known by that server's words.
#[tokio::test]
async fn the_reason_behind_a_gateway_decides_the_kind() {
    let raw = "{\"message\":\"This model's maximum context length is 8192 tokens.\"}";
    let error = json!({ "error": {
        "code": 400,
        "message": "Provider returned error",
        "metadata": { "raw": raw },
    } });
    let server = Server::start([reply(400, &error)]).await;
    let error = call(server.model(), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextLength);
}

#[tokio::test]
async fn a_stream_cut_before_its_end_is_an_error_with_thoughts_as_well() {
    let thinking = json!({ "content": [{ "type": "thinking", "thinking": "hm" }] });
    let chunk = crate::server::event(&delta(thinking));
    let server = Server::start([unfinished([chunk])]).await;
    let (response, _) = stream(server.model(), ModelRequest::default()).await;
    assert!(response.is_err());
}
