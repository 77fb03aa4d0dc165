//! What Converse sends.

use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Role};
use tower_agent::model::FinishReason;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Part};

use super::model;
use crate::answer::{Answer, call as calls, text};
use crate::column::{Column, bytes_of};
use crate::columns::converse::ConverseColumn;
use crate::frames::{event, exception, frame};
use crate::server::{Reply, Server, chunked_as, json as reply};
use test_support::{call, stream};

const MEDIA_TYPE: &str = "application/vnd.amazon.eventstream";

fn streamed(frames: impl IntoIterator<Item = Vec<u8>>) -> Reply {
    chunked_as(MEDIA_TYPE, frames)
}

async fn read(frames: impl IntoIterator<Item = Vec<u8>>) -> Result<ModelResponse, Error> {
    let server = Server::start([streamed(frames)]).await;
    stream(model(&server), ModelRequest::default()).await.0
}

fn answer() -> Vec<u8> {
    let answer = Answer::new([text(&["a", "b"]), calls("call_1", "look", &["{", "}"])]);
    bytes_of::<ConverseColumn>(&ConverseColumn::events(&answer))
}

fn delta(index: u64, delta: Value) -> Vec<u8> {
    let data = json!({ "delta": delta, "contentBlockIndex": index });
    event("contentBlockDelta", &data.to_string())
}

fn start(index: u64, start: Value) -> Vec<u8> {
    let data = json!({ "start": start, "contentBlockIndex": index });
    event("contentBlockStart", &data.to_string())
}

fn stop(index: u64) -> Vec<u8> {
    event(
        "contentBlockStop",
        &json!({ "contentBlockIndex": index }).to_string(),
    )
}

fn end(reason: &str) -> [Vec<u8>; 2] {
    [
        event("messageStop", &json!({ "stopReason": reason }).to_string()),
        event(
            "metadata",
            r#"{"usage":{"inputTokens":3,"outputTokens":4}}"#,
        ),
    ]
}

/// The number of a fragment may be that of no block, and fragments of two calls may be mixed.
#[tokio::test]
async fn arguments_whose_numbers_do_not_agree() {
    let call = |index: u64, id: &str| {
        start(
            index,
            json!({ "toolUse": { "toolUseId": id, "name": "look" } }),
        )
    };
    let piece = |index: u64, input: Value| delta(index, json!({ "toolUse": { "input": input } }));
    let arguments = async |frames: Vec<Vec<u8>>| {
        let response = read(frames.into_iter().chain(end("tool_use")))
            .await
            .unwrap();
        let calls = response.message().tool_calls();
        calls
            .map(|call| call.arguments.value().clone())
            .collect::<Vec<_>>()
    };
    let whole = json!("{\"at\":1}");
    assert_eq!(
        arguments(vec![call(1, "a"), piece(0, whole.clone())]).await,
        [json!({ "at": 1 })]
    );
    // An object in place of its text.
    assert_eq!(
        arguments(vec![call(0, "a"), piece(0, json!({ "at": 1 }))]).await,
        [json!({ "at": 1 })]
    );
    let mixed = vec![
        call(0, "a"),
        call(1, "b"),
        piece(0, json!("{\"at\":")),
        piece(1, json!("{\"at\":2}")),
        piece(0, json!("1}")),
    ];
    assert_eq!(
        arguments(mixed).await,
        [json!({ "at": 1 }), json!({ "at": 2 })]
    );
}

/// A frame that botocore's parser reads as the event that it is here.
#[test]
fn the_frames_of_these_tests_are_those_of_aws() {
    let bytes: String = event("messageStop", r#"{"stopReason":"end_turn"}"#)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        bytes,
        "0000007a00000051ca2c46650b3a6576656e742d7479706507000b6d65737361676553746f700d3a636f6e74\
         656e742d747970650700106170706c69636174696f6e2f6a736f6e0d3a6d6573736167652d747970650700056576\
         656e747b2273746f70526561736f6e223a22656e645f7475726e227d5fbf09fc"
    );
}

#[tokio::test]
async fn an_exception_is_an_error_of_its_kind() {
    for (name, kind) in [
        ("internalServerException", ErrorKind::Provider),
        ("modelStreamErrorException", ErrorKind::Provider),
        ("modelTimeoutException", ErrorKind::Timeout),
        ("serviceUnavailableException", ErrorKind::Overloaded),
        ("throttlingException", ErrorKind::RateLimited),
        ("validationException", ErrorKind::InvalidRequest),
        ("accessDeniedException", ErrorKind::Auth),
        ("resourceNotFoundException", ErrorKind::NotFound),
        ("modelNotReadyException", ErrorKind::Overloaded),
        ("aNewException", ErrorKind::Provider),
    ] {
        let said = delta(0, json!({ "text": "a" }));
        let error = read([said, exception(name, r#"{"message":"Sorry."}"#)])
            .await
            .unwrap_err();
        assert_eq!((error.kind(), error.message()), (kind, "Sorry."), "{name}");
        assert_eq!(error.is_retryable(), kind.is_retryable(), "{name}");
        assert_eq!(error.metadata().error_code.as_deref(), Some(name));
    }
    let too_long = exception(
        "validationException",
        r#"{"message":"Input is too long for requested model."}"#,
    );
    let error = read([too_long]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ContextLength);
}

#[tokio::test]
async fn an_exception_without_words_is_an_error_too() {
    for payload in ["", "{}", "not JSON"] {
        let error = read([exception("throttlingException", payload), answer()])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RateLimited, "{payload}");
    }
    let original = json!({
        "message": "The model failed.", "originalMessage": "out of memory", "originalStatusCode": 500,
    });
    let failed = exception("modelStreamErrorException", &original.to_string());
    let error = read([failed]).await.unwrap_err();
    assert_eq!(error.message(), "The model failed.: out of memory");
    let headers = [
        (":message-type", "error"),
        (":error-code", "InternalFailure"),
        (":error-message", "Sorry."),
    ];
    let error = read([frame(&headers, b"")]).await.unwrap_err();
    assert_eq!(
        (
            error.kind(),
            error.message(),
            error.metadata().error_code.as_deref()
        ),
        (ErrorKind::Provider, "Sorry.", Some("InternalFailure"))
    );
}

#[tokio::test]
async fn a_frame_with_a_wrong_byte_is_an_error() {
    let whole = answer();
    let replies = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        streamed([bytes])
    });
    let server = Server::start(replies).await;
    let model = model(&server);
    for at in 0..whole.len() {
        let (response, _) = stream(model.clone(), ModelRequest::default()).await;
        let error = response.expect_err(&format!("byte {at}"));
        assert_eq!(error.kind(), ErrorKind::Protocol, "{at}: {error}");
    }
}

#[tokio::test]
async fn a_frame_of_an_impossible_length_is_an_error_at_once() {
    for length in [0_u32, 15, 24 * 1024 * 1024 + 1, u32::MAX] {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&[0; 8]);
        let error = read([bytes]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{length}");
        assert!(
            error
                .message()
                .contains(&format!("a frame of {length} bytes")),
            "{error}"
        );
    }
}

/// Its usage is what a budget charges.
#[tokio::test]
async fn a_stream_without_its_usage_is_incomplete() {
    let [end, usage] = end("end_turn");
    let said = delta(0, json!({ "text": "a" }));
    let error = read([said.clone(), end]).await.unwrap_err();
    assert!(error.message().contains("ended early"), "{error}");
    // The other way round.
    let error = read([said, usage]).await.unwrap_err();
    assert!(error.message().contains("ended early"), "{error}");
}

#[tokio::test]
async fn why_the_model_stopped() {
    for (word, reason) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("guardrail_intervened", FinishReason::ContentFilter),
        ("content_filtered", FinishReason::ContentFilter),
        ("a_new_reason", FinishReason::Other("a_new_reason".into())),
    ] {
        let response = read(end(word)).await.unwrap();
        assert_eq!(response.finish_reason(), &reason);
    }
    for word in ["malformed_tool_use", "malformed_model_output"] {
        let error = read(end(word)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider);
        assert!(
            error.is_retryable() && error.message().contains(word),
            "{error}"
        );
    }
}

#[tokio::test]
async fn cached_tokens_are_input_tokens() {
    let usage = json!({
        "inputTokens": 10, "outputTokens": 2, "totalTokens": 42,
        "cacheReadInputTokens": 20, "cacheWriteInputTokens": 10,
        "cacheDetails": [{ "ttl": "1h", "inputTokens": 7 }, { "ttl": "5m", "inputTokens": 3 }],
    });
    let [end, _] = end("end_turn");
    let last = event("metadata", &json!({ "usage": usage }).to_string());
    let response = read([end, last]).await.unwrap();
    let usage = response.usage();
    assert_eq!((usage.input_tokens, usage.output_tokens), (40, 2));
    assert_eq!(
        (usage.cached_input_tokens, usage.cache_write_tokens),
        (20, 10)
    );
    assert_eq!(response.metadata().long_cache_write_tokens, Some(7));
}

fn content() -> Value {
    json!([
        { "reasoningContent": { "redactedContent": "AAEC" } },
        { "citationsContent": {
            "content": [{ "text": "It rains." }],
            "citations": [{ "title": "Weather", "location": { "web": { "url": "https://a.example" } } }],
        } },
        { "toolUse": {
            "toolUseId": "tooluse_1", "name": "nova_grounding", "type": "server_tool_use",
            "input": { "query": "rain" },
        } },
        { "toolResult": {
            "toolUseId": "tooluse_1", "type": "nova_grounding_result", "status": "success",
            "content": [{ "json": { "found": 1 } }, { "text": "rain" }],
        } },
        { "text": "So." },
    ])
}

fn content_streamed() -> Vec<Vec<u8>> {
    let all = content();
    let tool_use =
        json!({ "toolUseId": "tooluse_1", "name": "nova_grounding", "type": "server_tool_use" });
    let result = json!({
        "toolUseId": "tooluse_1", "type": "nova_grounding_result", "status": "success",
    });
    let mut frames = vec![
        delta(
            0,
            json!({ "reasoningContent": { "redactedContent": "AAE=" } }),
        ),
        delta(
            0,
            json!({ "reasoningContent": { "redactedContent": "Ag==" } }),
        ),
        stop(0),
        delta(1, json!({ "text": "It " })),
        delta(1, json!({ "text": "rains." })),
        delta(
            1,
            json!({ "citation": all[1]["citationsContent"]["citations"][0] }),
        ),
        stop(1),
        start(2, json!({ "toolUse": tool_use })),
        delta(2, json!({ "toolUse": { "input": "{\"query\":" } })),
        delta(2, json!({ "toolUse": { "input": "\"rain\"}" } })),
        stop(2),
        start(3, json!({ "toolResult": result })),
        delta(3, json!({ "toolResult": [{ "json": { "found": 1 } }] })),
        delta(3, json!({ "toolResult": [{ "text": "rain" }] })),
        stop(3),
        delta(4, json!({ "text": "So." })),
        stop(4),
    ];
    frames.extend(end("end_turn"));
    frames
}

#[tokio::test]
async fn what_the_model_said_goes_back_as_it_came() {
    let body = json!({
        "output": { "message": { "role": "assistant", "content": content() } },
        "stopReason": "end_turn",
    });
    let again = json!({ "output": { "message": { "content": [{ "text": "ok" }] } } });
    let server = Server::start([
        reply(200, &body),
        reply(200, &again),
        streamed(content_streamed()),
        reply(200, &again),
    ])
    .await;
    let model = model(&server);
    for is_streamed in [false, true] {
        let mut request = ModelRequest::new([Message::user("Does it rain?")]);
        let response = if is_streamed {
            stream(model.clone(), request.clone()).await.0.unwrap()
        } else {
            call(model.clone(), request.clone()).await.unwrap()
        };
        assert_eq!(response.text(), "It rains.So.");
        assert_eq!(response.message().tool_calls().count(), 0);
        let message = serde_json::to_string(response.message()).unwrap();
        request
            .messages_mut()
            .push(serde_json::from_str(&message).unwrap());
        request.messages_mut().push(Message::user("Thanks."));
        call(model.clone(), request).await.unwrap();
    }
    let seen = server.seen();
    for second in [&seen[1], &seen[3]] {
        assert_eq!(second.body["messages"][1]["content"], content());
    }
}

/// AWS says the start of a tool call alone; others of every block.
#[tokio::test]
async fn a_start_of_text_says_nothing() {
    let mut frames = vec![
        start(0, json!({ "reasoningContent": {} })),
        delta(0, json!({ "reasoningContent": { "text": "Hm." } })),
        stop(0),
        start(1, json!({})),
        delta(1, json!({ "text": "Hi." })),
        stop(1),
        start(2, json!({ "text": "" })),
        delta(2, json!({ "text": "Ho." })),
        stop(2),
    ];
    frames.extend(end("end_turn"));
    let response = read(frames).await.unwrap();
    let [
        Part::Reasoning(reasoning),
        Part::Text(first),
        Part::Text(second),
    ] = response.message().parts()
    else {
        panic!("{response:?}");
    };
    assert_eq!(
        (&*reasoning.text, &*first.text, &*second.text),
        ("Hm.", "Hi.", "Ho.")
    );
}

#[tokio::test]
async fn an_image_of_the_model_is_a_part() {
    let body = json!({ "output": { "message": { "content": [
        { "image": { "format": "png", "source": { "bytes": "AAAA" } } },
    ] } } });
    let mut frames = vec![
        start(0, json!({ "image": { "format": "png" } })),
        delta(0, json!({ "image": { "source": { "bytes": "AAAA" } } })),
        stop(0),
    ];
    frames.extend(end("end_turn"));
    let server = Server::start([reply(200, &body)]).await;
    let plain = call(model(&server), ModelRequest::default()).await.unwrap();
    for response in [plain, read(frames).await.unwrap()] {
        let [Part::Image(image)] = response.message().parts() else {
            panic!("{response:?}");
        };
        assert_eq!(image.source, MediaSource::base64("image/png", "AAAA"));
        assert_eq!(response.message().role(), Role::Assistant);
    }
}
