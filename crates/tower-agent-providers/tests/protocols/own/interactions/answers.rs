//! Answers: reading them, and sending them back.

use serde_json::{Value, json};
use tower_agent::message::{Reasoning, Usage};
use tower_agent::model::FinishReason;
use tower_agent::stream::Delta;
use tower_agent::{ErrorKind, Message, ModelRequest, ModelResponse, Part};

use super::{answers, completed, delta, events, interaction, model, ours, says, start, stop};
use crate::answer::{Said, said};
use crate::server::{Server, json as reply};
use test_support::{call, deltas, stream};

async fn plain(steps: Value) -> ModelResponse {
    let server = Server::start([answers(steps)]).await;
    call(model(&server), ModelRequest::default()).await.unwrap()
}

async fn streamed(all: &[Value]) -> ModelResponse {
    let server = Server::start([events(all)]).await;
    stream(model(&server), ModelRequest::default())
        .await
        .0
        .unwrap()
}

/// The steps in which a message is sent back.
async fn back(response: &ModelResponse) -> Value {
    let server = Server::start([answers(json!([says("ok")]))]).await;
    let message = serde_json::to_string(response.message()).unwrap();
    let message: Message = serde_json::from_str(&message).unwrap();
    call(model(&server), ModelRequest::new([message]))
        .await
        .unwrap();
    server.only().body["input"].clone()
}

#[tokio::test]
async fn arguments_with_a_number_that_no_call_has() {
    let call = json!({ "type": "function_call", "id": "f", "name": "look" });
    let piece = json!({ "type": "arguments_delta", "arguments": "{\"at\":1}" });
    let response = streamed(&[
        start(1, call),
        delta(0, piece),
        stop(1),
        completed("completed"),
    ])
    .await;
    let calls: Vec<_> = response.message().tool_calls().collect();
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].arguments, json!({ "at": 1 }));
}

#[tokio::test]
async fn steps_go_back_as_they_came() {
    let citation = json!({ "type": "url_citation", "url": "https://example.com", "end_index": 4 });
    let text = json!({ "type": "text", "text": "Here.", "annotations": [citation] });
    let several = json!([
        { "type": "text", "text": "One." },
        { "type": "text", "text": "Two." },
        { "type": "image", "mime_type": "image/png", "data": "iVBORw0=" },
    ]);
    let one = json!([{ "type": "text", "text": "Once." }]);
    let steps = json!([
        { "type": "thought", "signature": "a", "summary": several },
        { "type": "google_search_call", "id": "g", "arguments": { "queries": ["q"] }, "signature": "b" },
        { "type": "google_search_result", "call_id": "g", "result": [{ "title": "t" }], "signature": "c" },
        { "type": "thought", "signature": "d", "summary": one },
        { "type": "model_output", "content": [
            text,
            { "type": "image", "mime_type": "image/png", "data": "iVBORw0=" },
            { "type": "text", "text": "And here." },
            { "type": "text", "text": "And there." },
        ] },
        { "type": "thought", "signature": "e" },
        { "type": "function_call", "id": "f", "name": "look", "arguments": { "at": 1.5 }, "signature": "g" },
    ]);
    let response = plain(steps.clone()).await;
    assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    assert_eq!(back(&response).await, steps);
    let thoughts = response
        .message()
        .parts()
        .iter()
        .filter_map(|part| match part {
            Part::Reasoning(reasoning) => Some(&*reasoning.text),
            _ => None,
        });
    assert_eq!(thoughts.collect::<Vec<_>>(), ["One.Two.", "Once.", ""]);
    assert!(matches!(response.message().parts()[5], Part::Image(_)));
}

#[tokio::test]
async fn streamed_steps_go_back_as_whole_ones() {
    let word = |text: &str| json!({ "type": "text", "text": text });
    let summary = |item: Value| json!({ "type": "thought_summary", "content": item });
    let image = json!({ "type": "image", "mime_type": "image/png", "data": "iVBORw0=" });
    let citation = json!({ "type": "url_citation", "url": "https://example.com" });
    let annotation = json!({ "type": "text_annotation_delta", "annotations": [citation] });
    let response = streamed(&[
        json!({ "event_type": "interaction.created", "interaction": { "id": "v1_1" } }),
        start(0, json!({ "type": "thought" })),
        delta(0, summary(word("First "))),
        delta(0, summary(word("this."))),
        delta(0, summary(image.clone())),
        delta(0, json!({ "type": "thought_signature", "signature": "a" })),
        stop(0),
        start(1, json!({ "type": "google_search_call", "id": "g" })),
        delta(
            1,
            json!({ "type": "google_search_call", "arguments": { "queries": ["q"] } }),
        ),
        delta(1, json!({ "type": "google_search_call", "signature": "b" })),
        stop(1),
        start(2, json!({ "type": "model_output" })),
        delta(2, word("Here")),
        delta(2, word(".")),
        delta(2, annotation.clone()),
        stop(2),
        start(
            3,
            json!({ "type": "model_output", "content": [word("And")] }),
        ),
        delta(3, word(" this:")),
        delta(3, image.clone()),
        stop(3),
        completed("completed"),
    ])
    .await;
    assert_eq!(response.text(), "Here.And this:");
    let expected = json!([
        { "type": "thought", "signature": "a", "summary": [word("First this."), image] },
        { "type": "google_search_call", "id": "g", "arguments": { "queries": ["q"] }, "signature": "b" },
        { "type": "model_output", "content": [
            { "type": "text", "text": "Here.", "annotations": [citation] }, word("And this:"), image,
        ] },
    ]);
    assert_eq!(back(&response).await, expected);
}

/// Content that this library has no part for.
#[tokio::test]
async fn other_contents_are_kept_as_steps() {
    let video =
        json!({ "type": "video", "mime_type": "video/mp4", "uri": "https://example.com/v" });
    let untyped = json!({ "type": "image", "data": "iVBORw0=" });
    let future = json!({ "type": "future_step", "new": { "field": [1] } });
    let steps = json!([{ "type": "model_output", "content": [video, untyped] }, future]);
    let expected = json!([
        { "type": "model_output", "content": [video] },
        { "type": "model_output", "content": [untyped] },
        future,
    ]);
    let response = plain(steps).await;
    assert_eq!(back(&response).await, expected);
    let all = [
        start(0, json!({ "type": "model_output" })),
        delta(0, video),
        delta(0, untyped),
        delta(0, json!({ "type": "future_delta", "text": "?" })),
        stop(0),
        start(1, future),
        stop(1),
        completed("completed"),
    ];
    assert_eq!(back(&streamed(&all).await).await, expected);
}

/// A question is not an answer.
#[tokio::test]
async fn steps_that_are_repeated_are_ignored() {
    let asked = json!({ "type": "user_input", "content": [{ "type": "text", "text": "hi" }] });
    let result = json!({ "type": "function_result", "call_id": "f", "name": "look", "result": "" });
    let response = plain(json!([asked, result, says("ok")])).await;
    assert_eq!(said(response.message()), [Said::Text("ok".into())]);
}

#[tokio::test]
async fn a_call_may_begin_with_its_arguments() {
    let call = |arguments: Value| json!({ "type": "function_call", "id": "f", "name": "look", "arguments": arguments });
    let piece = |text: &str| json!({ "type": "arguments_delta", "arguments": text });
    for (arguments, pieces, expected) in [
        (json!({ "at": 1 }), &[][..], json!({ "at": 1 })),
        (json!({ "at": 1 }), &["{\"at\":", "2}"], json!({ "at": 2 })),
        (json!({}), &["{\"at\":2}"], json!({ "at": 2 })),
        (Value::Null, &[], json!({})),
    ] {
        let pieces = pieces.iter().map(|text| delta(0, piece(text)));
        let all: Vec<_> = [start(0, call(arguments))]
            .into_iter()
            .chain(pieces)
            .chain([stop(0), completed("requires_action")])
            .collect();
        let response = streamed(&all).await;
        let calls: Vec<_> = response.message().tool_calls().collect();
        assert_eq!(calls.len(), 1);
        assert_eq!(
            (&*calls[0].id, &calls[0].arguments),
            ("f", &expected.into())
        );
    }
}

/// The signature of a call, as some revisions have it.
#[tokio::test]
async fn a_signature_of_a_call_is_kept() {
    let call = json!({ "type": "function_call", "id": "f", "name": "look", "arguments": {} });
    let signed = json!({ "type": "arguments_delta", "arguments": "{}", "signature": "s" });
    let all = [
        start(0, call),
        delta(0, signed),
        stop(0),
        completed("requires_action"),
    ];
    let response = streamed(&all).await;
    let call = response.message().tool_calls().next().unwrap();
    assert_eq!(
        call.provider.get("gemini_interactions"),
        Some(&json!({ "signature": "s" }))
    );
}

#[tokio::test]
async fn a_signature_alone_is_reasoning_without_text() {
    let mut expected = Reasoning::default();
    expected.provider = ours(json!({ "signature": "s" }));
    let signature = json!({ "type": "thought_signature", "signature": "s" });
    let all = [
        start(0, json!({ "type": "thought" })),
        delta(0, signature),
        stop(0),
    ];
    let step = json!({ "type": "thought", "signature": "s", "summary": [] });
    let plain = plain(json!([step, says("ok")])).await;
    let text = json!({ "type": "text", "text": "ok" });
    let all: Vec<_> = all
        .into_iter()
        .chain([delta(1, text), completed("completed")])
        .collect();
    for response in [plain, streamed(&all).await] {
        let [Part::Reasoning(reasoning), Part::Text(text)] = response.message().parts() else {
            panic!("{response:?}");
        };
        assert_eq!(reasoning.text, "");
        assert_eq!(
            reasoning.provider.get("gemini_interactions"),
            expected.provider.get("gemini_interactions")
        );
        assert_eq!(text.text, "ok");
    }
}

#[tokio::test]
async fn steps_may_come_at_the_same_time() {
    let text = |text: &str| json!({ "type": "text", "text": text });
    let argument = |text: &str| json!({ "type": "arguments_delta", "arguments": text });
    let call = |id: &str| json!({ "type": "function_call", "id": id, "name": "look" });
    let response = streamed(&[
        start(0, json!({ "type": "model_output" })),
        start(1, call("a")),
        start(2, call("b")),
        delta(2, argument("{\"at\":")),
        delta(0, text("I look.")),
        delta(1, argument("{}")),
        delta(2, argument("2}")),
        stop(2),
        stop(0),
        completed("requires_action"),
    ])
    .await;
    let call = |id: &str, arguments: Value| Said::Call {
        id: id.into(),
        name: "look".into(),
        arguments,
    };
    let expected = [
        call("a", json!({})),
        call("b", json!({ "at": 2 })),
        Said::Text("I look.".into()),
    ];
    assert_eq!(said(response.message()), expected);
}

#[tokio::test]
async fn why_it_stopped() {
    for (status, reason) in [
        ("completed", FinishReason::Stop),
        ("incomplete", FinishReason::Length),
        ("budget_exceeded", FinishReason::Length),
        ("requires_continuation", FinishReason::Length),
        ("surprising", FinishReason::Other("surprising".into())),
    ] {
        let server = Server::start([
            reply(200, &interaction(status, json!([says("ok")]))),
            events(&[
                delta(0, json!({ "type": "text", "text": "ok" })),
                completed(status),
            ]),
        ])
        .await;
        let plain = call(model(&server), ModelRequest::default()).await.unwrap();
        let streamed = stream(model(&server), ModelRequest::default())
            .await
            .0
            .unwrap();
        for response in [plain, streamed] {
            assert_eq!(
                (response.text(), response.finish_reason()),
                ("ok".into(), &reason)
            );
        }
    }
}

#[tokio::test]
async fn an_answer_that_can_be_continued_says_how() {
    let mut last = completed("requires_continuation");
    last["interaction"]["continuation_token"] = "t".into();
    let response = streamed(&[delta(0, json!({ "type": "text", "text": "a" })), last]).await;
    let data = response.message().provider().get("gemini_interactions");
    assert_eq!(data, Some(&json!({ "continuation_token": "t" })));
}

#[tokio::test]
async fn usage_is_the_latest_that_was_said() {
    let usage = |input: u64, output: u64| json!({ "total_input_tokens": input, "total_output_tokens": output });
    let with = |mut event: Value, usage: Value| {
        event["usage"] = usage;
        event["step_usage"] = json!({ "total_input_tokens": 1000 });
        event
    };
    let mut last = completed("completed");
    last["interaction"]["usage"] = json!({
        "total_output_tokens": 9, "total_thought_tokens": 4, "total_tool_use_tokens": 2,
        "total_cached_tokens": 3,
    });
    let response = streamed(&[
        with(stop(0), usage(5, 1)),
        delta(1, json!({ "type": "text", "text": "ok" })),
        with(stop(1), usage(7, 2)),
        last,
    ])
    .await;
    let mut expected = Usage::new(9, 13);
    expected.cached_input_tokens = 3;
    expected.reasoning_tokens = 4;
    assert_eq!(response.usage(), expected);
}

#[tokio::test]
async fn calls_without_an_id_or_with_the_same_are_told_apart() {
    let call = |id: Value| json!({ "type": "function_call", "id": id, "name": "look" });
    let calls = [
        call("a".into()),
        call("a".into()),
        call(Value::Null),
        call("".into()),
    ];
    let events = calls
        .clone()
        .into_iter()
        .zip(0..)
        .map(|(call, at)| start(at, call));
    let events: Vec<_> = events.chain([completed("requires_action")]).collect();
    for response in [plain(json!(calls)).await, streamed(&events).await] {
        let ids = response.message().tool_calls().map(|call| &*call.id);
        let ids: std::collections::BTreeSet<_> = ids.collect();
        assert_eq!(ids.len(), 4, "{ids:?}");
        assert!(ids.contains("a"));
    }
}

#[tokio::test]
async fn a_call_without_a_name_is_an_error() {
    let piece = json!({ "type": "arguments_delta", "arguments": "{}" });
    let server = Server::start([
        answers(json!([{ "type": "function_call", "id": "f", "arguments": {} }])),
        events(&[delta(0, piece), completed("requires_action")]),
    ])
    .await;
    let plain = call(model(&server), ModelRequest::default())
        .await
        .unwrap_err();
    let streamed = stream(model(&server), ModelRequest::default())
        .await
        .0
        .unwrap_err();
    for error in [plain, streamed] {
        assert_eq!(error.kind(), ErrorKind::Protocol);
        assert!(error.message().contains("without a name"), "{error}");
    }
}

#[tokio::test]
async fn deltas_are_passed_on_as_they_come() {
    let server = Server::start([events(&[
        start(0, json!({ "type": "thought" })),
        delta(
            0,
            json!({ "type": "thought_summary", "content": { "type": "text", "text": "Hm" } }),
        ),
        stop(0),
        start(
            1,
            json!({ "type": "function_call", "id": "f", "name": "look", "arguments": {} }),
        ),
        delta(
            1,
            json!({ "type": "arguments_delta", "arguments": "{\"at" }),
        ),
        delta(
            1,
            json!({ "type": "arguments_delta", "arguments": "\":1}" }),
        ),
        stop(1),
        completed("requires_action"),
    ])])
    .await;
    let (response, all) = stream(model(&server), ModelRequest::default()).await;
    response.unwrap();
    let expected = [
        Delta::Reasoning("Hm".into()),
        test_support::begins(0, "f", "look"),
        test_support::arguments(0, "{\"at"),
        test_support::arguments(0, "\":1}"),
    ];
    assert_eq!(deltas(all), expected);
}
