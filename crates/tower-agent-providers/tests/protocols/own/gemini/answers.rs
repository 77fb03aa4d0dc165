//! Responses, streamed and not.

use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, Reasoning, Text, ToolCall};
use tower_agent::model::FinishReason;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Role, Usage};

use super::{events, finished, model, ours, parts, signed};
use crate::server::{self, Server};
use test_support::{call, stream};

/// Answers with one chunk, plainly and as a stream, which must be read alike.
async fn both(answer: Value) -> Result<ModelResponse, Error> {
    let server = Server::start([server::json(200, &answer), events(&[answer])]).await;
    let plain = call(model(&server), ModelRequest::default()).await;
    let (streamed, _) = stream(model(&server), ModelRequest::default()).await;
    match (plain, streamed) {
        (Ok(plain), Ok(streamed)) => {
            assert_eq!(plain.message(), streamed.message());
            assert_eq!(plain.usage(), streamed.usage());
            assert_eq!(plain.finish_reason(), streamed.finish_reason());
            Ok(streamed)
        }
        (Err(plain), Err(streamed)) => {
            assert_eq!(plain.kind(), streamed.kind());
            assert_eq!(plain.message(), streamed.message());
            Err(streamed)
        }
        (plain, streamed) => panic!("{plain:?} is not {streamed:?}"),
    }
}

async fn read(parts: Value) -> Vec<Part> {
    both(finished(parts, "STOP"))
        .await
        .unwrap()
        .message()
        .parts()
        .to_vec()
}

fn text(text: &str, signature: &str) -> Part {
    let mut part = Text::default();
    (part.text, part.provider) = (text.into(), signed(signature));
    Part::Text(part)
}

#[tokio::test]
async fn a_plain_answer() {
    let mut answer = finished(json!([{ "text": "Hellö" }]), "STOP");
    answer["usageMetadata"] = json!({
        "promptTokenCount": 20,
        "candidatesTokenCount": 10,
        "thoughtsTokenCount": 7,
        "cachedContentTokenCount": 5,
        "toolUsePromptTokenCount": 3,
        "totalTokenCount": 40,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 20 }],
    });
    answer["modelVersion"] = "gemini-3-flash-preview-09".into();
    answer["responseId"] = "resp_1".into();
    let server = Server::start([server::json(200, &answer)]).await;
    let response = call(model(&server), ModelRequest::default()).await.unwrap();
    assert_eq!(response.message(), &Message::assistant("Hellö"));
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
    let mut usage = Usage::new(23, 17);
    (usage.cached_input_tokens, usage.reasoning_tokens) = (5, 7);
    assert_eq!(response.usage(), usage, "thoughts are output");
    assert_eq!(response.usage().total(), 40);
    assert_eq!(response.metadata().request_id.as_deref(), Some("resp_1"));
    assert_eq!(
        response.metadata().model.as_deref(),
        Some("gemini-3-flash-preview-09")
    );
}

#[tokio::test]
async fn parallel_calls_with_one_signature() {
    let called = |name: &str| json!({ "functionCall": { "name": name, "args": { "a": 1 } } });
    let mut first = called("add");
    first["thoughtSignature"] = "sig".into();
    let response = both(finished(
        json!([first, called("add"), called("sub")]),
        "STOP",
    ))
    .await;
    let response = response.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    let expected = |id: &str, name: &str| ToolCall::new(id, name, json!({ "a": 1 }));
    let mut first = expected("call_0_0", "add");
    first.provider = signed("sig");
    let expected = [
        first,
        expected("call_0_1", "add"),
        expected("call_0_2", "sub"),
    ];
    assert!(
        response.message().tool_calls().eq(&expected),
        "{response:?}"
    );
}

#[tokio::test]
async fn ids_of_the_server_are_kept_unless_they_repeat() {
    let called = |id: &str| json!({ "functionCall": { "id": id, "name": "add", "args": {} } });
    let parts = read(json!([called("x"), called("x"), called("y")])).await;
    let ids: Vec<_> = parts
        .iter()
        .map(|part| match part {
            Part::ToolCall(call) => &*call.id,
            _ => panic!("{part:?}"),
        })
        .collect();
    assert_eq!(ids, ["x", "call_0_1", "y"]);
}

#[tokio::test]
async fn ids_differ_from_turn_to_turn() {
    let mut ids = Vec::new();
    for asked in [1, 3] {
        let answer = finished(json!([{ "functionCall": { "name": "add" } }]), "STOP");
        let server = Server::start([server::json(200, &answer)]).await;
        let request = ModelRequest::new(vec![Message::user("Go on."); asked]);
        let response = call(model(&server), request).await.unwrap();
        ids.extend(response.message().tool_calls().map(|call| call.id.clone()));
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_call_without_arguments_is_kept_with_its_signature() {
    for call in [
        json!({ "name": "now" }),
        json!({ "name": "now", "args": null }),
        json!({ "name": "now", "args": {} }),
    ] {
        let parts = read(json!([{ "functionCall": call, "thoughtSignature": "sig" }])).await;
        let mut expected = ToolCall::from_text("call_0_0", "now", "{}");
        expected.provider = signed("sig");
        assert_eq!(parts, [Part::ToolCall(expected)]);
    }
}

#[tokio::test]
async fn arguments_are_kept_byte_for_byte() {
    const WRITTEN: &str =
        r#"{ "b":"Z\u00fcrich",  "a" : 123456789012345678901234567890 , "c":1.10 }"#;
    let call = format!("{{\"functionCall\":{{\"name\":\"pay\",\"args\":{WRITTEN}}}}}");
    let answer = format!(
        "{{\"candidates\":[{{\"content\":{{\"parts\":[{call}]}},\"finishReason\":\"STOP\"}}]}}"
    );
    let headers = [("content-type", "application/json")];
    let plain = server::whole(200, &headers, &answer);
    let streamed = server::chunked([format!("data: {answer}\r\n\r\n")]);
    let server = Server::start([plain, streamed]).await;
    let plain = call_one(&server, false).await;
    let streamed = call_one(&server, true).await;
    for response in [plain, streamed] {
        let calls: Vec<_> = response.message().tool_calls().collect();
        assert_eq!(calls[0].arguments.as_str(), WRITTEN);
    }
}

async fn call_one(server: &Server, is_streamed: bool) -> ModelResponse {
    if is_streamed {
        stream(model(server), ModelRequest::default())
            .await
            .0
            .unwrap()
    } else {
        call(model(server), ModelRequest::default()).await.unwrap()
    }
}

#[tokio::test]
async fn thoughts_are_reasoning() {
    let parts = read(json!([
        { "text": "Hm.", "thought": true },
        { "text": "Ah.", "thought": true, "thoughtSignature": "t" },
        { "text": "Four.", "thoughtSignature": "s" },
    ]))
    .await;
    let mut ah = Reasoning::default();
    (ah.text, ah.provider) = ("Ah.".into(), signed("t"));
    assert_eq!(
        parts,
        [
            Part::reasoning("Hm."),
            Part::Reasoning(ah),
            text("Four.", "s")
        ]
    );
}

#[tokio::test]
async fn signatures_on_empty_parts_are_parts_of_their_own() {
    let empty = json!([{ "text": "Four." }, { "text": "", "thoughtSignature": "s" }]);
    assert_eq!(read(empty).await, [Part::from_text("Four."), text("", "s")]);
    let none = json!([{ "text": "Four." }, { "thoughtSignature": "s" }]);
    assert_eq!(read(none).await, [Part::from_text("Four."), text("", "s")]);
    let alone = json!([{ "text": "", "thoughtSignature": "s" }, {}, { "text": "" }]);
    assert_eq!(read(alone).await, [text("", "s")]);
}

#[tokio::test]
async fn media_from_the_model() {
    let blob = |media_type: &str| json!({ "mimeType": media_type, "data": "AAAA" });
    let thought = json!({ "inlineData": blob("image/png"), "thought": true });
    let parts = read(json!([
        thought,
        { "inlineData": blob("image/png"), "thoughtSignature": "i" },
        { "inlineData": blob("audio/wav") },
        { "inlineData": blob("application/pdf") },
    ]))
    .await;
    let source = |media_type: &str| MediaSource::base64(media_type, "AAAA");
    let mut image = Media::new(source("image/png"));
    image.provider = signed("i");
    let expected = [
        Part::Provider(ours(thought)),
        Part::image(image),
        Part::audio(source("audio/wav")),
        Part::document(source("application/pdf")),
    ];
    assert_eq!(parts, expected);
}

#[tokio::test]
async fn parts_of_unknown_kinds_are_kept_whole() {
    let code = json!({ "executableCode": { "code": "1" }, "thoughtSignature": "s" });
    let result = json!({ "codeExecutionResult": { "outcome": "OUTCOME_OK", "output": "1" } });
    let parts = read(json!([code, result, { "text": "One." }])).await;
    let whole = |part| Part::Provider(ours(part));
    assert_eq!(parts, [whole(code), whole(result), Part::from_text("One.")]);
}

#[tokio::test]
async fn every_finish_reason() {
    let filter = FinishReason::ContentFilter;
    let other = |word: &'static str| FinishReason::Other(word.into());
    for (word, reason) in [
        ("STOP", FinishReason::Stop),
        ("MAX_TOKENS", FinishReason::Length),
        ("SAFETY", filter.clone()),
        ("RECITATION", filter.clone()),
        ("BLOCKLIST", filter.clone()),
        ("PROHIBITED_CONTENT", filter.clone()),
        ("SPII", filter.clone()),
        ("IMAGE_SAFETY", filter.clone()),
        ("LANGUAGE", other("LANGUAGE")),
        ("OTHER", other("OTHER")),
        ("SOMETHING_NEW", other("SOMETHING_NEW")),
    ] {
        let response = both(finished(json!([{ "text": "a" }]), word))
            .await
            .unwrap();
        assert_eq!(response.finish_reason(), &reason);
    }
    // Filtered answers have no content.
    let blocked = json!({ "candidates": [{ "finishReason": "SAFETY", "index": 0 }] });
    assert_eq!(both(blocked).await.unwrap().finish_reason(), &filter);
}

#[tokio::test]
async fn an_answer_that_went_wrong_is_an_error() {
    let mut answer = finished(json!([]), "MALFORMED_FUNCTION_CALL");
    answer["candidates"][0]["finishMessage"] = "Malformed function call: print(add(".into();
    let error = both(answer).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    assert!(error.is_retryable());
    let message = "MALFORMED_FUNCTION_CALL: Malformed function call: print(add(";
    assert_eq!(error.message(), message);
    let error = both(finished(json!([]), "UNEXPECTED_TOOL_CALL"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Provider);
    let error = both(finished(json!([]), "MISSING_THOUGHT_SIGNATURE"))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_blocked_prompt_is_not_an_empty_success() {
    let feedback = json!({ "blockReason": "PROHIBITED_CONTENT" });
    let answer = json!({
        "promptFeedback": feedback,
        "usageMetadata": { "promptTokenCount": 4, "totalTokenCount": 4 },
    });
    let response = both(answer).await.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::ContentFilter);
    assert_eq!(response.message().parts(), []);
    assert_eq!(response.usage().input_tokens, 4);
    let data = response.message().provider().get("gemini");
    assert_eq!(data, Some(&json!({ "promptFeedback": feedback })));
}

#[tokio::test]
async fn feedback_that_blocks_nothing_is_nothing() {
    let mut answer = finished(json!([{ "text": "a" }]), "STOP");
    answer["promptFeedback"] =
        json!({ "blockReason": "BLOCK_REASON_UNSPECIFIED", "safetyRatings": [] });
    let response = both(answer).await.unwrap();
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
    assert!(response.message().provider().is_empty());
}

#[tokio::test]
async fn grounding_is_kept() {
    let mut answer = finished(json!([{ "text": "a" }]), "STOP");
    let grounding = json!({ "webSearchQueries": ["a"] });
    answer["candidates"][0]["groundingMetadata"] = grounding.clone();
    answer["candidates"][0]["citationMetadata"] = json!({});
    let response = both(answer).await.unwrap();
    let data = response.message().provider().get("gemini");
    assert_eq!(data, Some(&json!({ "groundingMetadata": grounding })));
}

#[tokio::test]
async fn no_candidates_at_all() {
    let server = Server::start([server::json(200, &json!({ "usageMetadata": {} }))]).await;
    let error = call(model(&server), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    assert_eq!(error.message(), "the response has no candidates");
}

#[tokio::test]
async fn odd_fields_are_read_leniently() {
    let answer = json!({
        "candidates": [
            { "index": 1, "content": { "parts": [{ "text": "b" }] }, "finishReason": "STOP" },
            {
                "content": { "parts": [{ "text": "a", "thought": null, "inlineData": null }] },
                "finishReason": "STOP", "safetyRatings": null, "avgLogprobs": -0.1,
            },
        ],
        "usageMetadata": { "promptTokenCount": "many", "candidatesTokenCount": 2 },
        "responseId": 7, "modelVersion": null, "promptFeedback": null, "error": null, "new": {},
    });
    let response = both(answer).await.unwrap();
    assert_eq!(response.text(), "a");
    assert_eq!(response.usage(), Usage::new(0, 2));
    for nothing in [
        json!({ "content": null }),
        json!({ "content": { "parts": null } }),
    ] {
        let mut candidate = nothing;
        candidate["finishReason"] = "STOP".into();
        let response = both(json!({ "candidates": [candidate] })).await.unwrap();
        assert_eq!(response.message().parts(), []);
    }
}

#[tokio::test]
async fn calls_in_pieces_are_an_error() {
    for call in [
        json!({ "args": {} }),
        json!({ "name": "add", "willContinue": true }),
    ] {
        let error = both(finished(json!([{ "functionCall": call }]), "STOP"))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(
            error.message().contains("part of a function call"),
            "{error}"
        );
    }
}

/// A stream whose query was dropped on the way.
#[tokio::test]
async fn an_array_of_chunks() {
    let first = parts(json!([{ "text": "Hel" }]));
    let chunks = json!([first, finished(json!([{ "text": "lo" }]), "STOP")]);
    let server = Server::start([server::json(200, &chunks)]).await;
    let (response, _) = stream(model(&server), ModelRequest::default()).await;
    let response = response.unwrap();
    assert_eq!(
        response.message(),
        &Message::new(Role::Assistant, [Part::from_text("Hello")])
    );
}

#[tokio::test]
async fn probabilities_and_further_candidates_are_kept() {
    let chosen = |token: &str| json!({ "chosenCandidates": [{ "token": token }] });
    let first = json!({
        "content": { "parts": [{ "text": "a" }] }, "finishReason": "STOP", "index": 0,
        "avgLogprobs": -0.5, "logprobsResult": chosen("a"),
    });
    let other = json!({ "content": { "parts": [{ "text": "b" }] }, "index": 1 });
    let body = json!({ "candidates": [other, first] });
    let response = both(body).await.unwrap();
    assert_eq!(response.text(), "a");
    let expected = json!({
        "avgLogprobs": -0.5,
        "logprobsResult": chosen("a"),
        "candidates": [other],
    });
    assert_eq!(response.message().provider(), &ours(expected));
}
