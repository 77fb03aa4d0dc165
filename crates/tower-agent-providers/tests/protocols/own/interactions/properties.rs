//! Every conversation becomes steps that the protocol accepts, and every stream is read to an end.

use futures::FutureExt;
use proptest::prelude::*;
use serde_json::{Value, json};
use test_support::property::cases;
use tower_agent::message::{MediaSource, ToolCall, ToolResult};
use tower_agent::stream::{Attempt, Piece};
use tower_agent::{Message, ModelRequest, ModelResponse, Part, Role};
use tower_agent_providers::Protocol;
use tower_agent_providers::gemini::Interactions;
use tower_agent_providers::protocol::{Call, Decoder, Event, Progress};

use super::{completed, delta, ours, start, stop};

fn part(number: usize) -> impl Strategy<Value = Part> {
    let call = ToolCall::new(format!("call {number}"), "look", json!({}));
    let result = ToolResult::new(&call, [Part::from_text("seen")]);
    let signed = || {
        let mut part = Part::reasoning("Hm.");
        if let Part::Reasoning(reasoning) = &mut part {
            reasoning.provider = ours(json!({ "signature": "s" }));
        }
        part
    };
    prop_oneof![
        4 => Just(Part::from_text(format!("text {number}"))),
        1 => Just(Part::from_text("")),
        1 => Just(Part::reasoning("Hm.")),
        2 => Just(signed()),
        1 => Just(Part::image(MediaSource::base64("image/png", "iVBO"))),
        3 => Just(Part::ToolResult(result)),
        3 => Just(Part::ToolCall(call)),
    ]
}

fn message(number: usize) -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        1 => Just(Role::System),
        3 => Just(Role::User),
        3 => Just(Role::Assistant),
        4 => Just(Role::Tool),
    ];
    // Results are also of the calls of the messages before.
    let parts = (number.saturating_sub(2)..=number).prop_flat_map(part);
    (role, prop::collection::vec(parts, 0..4)).prop_map(|(role, parts)| {
        let may_hold = |part: &Part| match part {
            Part::ToolCall(_) | Part::Reasoning(_) => role == Role::Assistant,
            Part::ToolResult(_) => role == Role::Tool || role == Role::User,
            Part::Text(_) => true,
            _ => role != Role::System,
        };
        Message::new(role, parts.into_iter().filter(may_hold))
    })
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    (0_usize..9).prop_flat_map(|length| (0..length).map(message).collect::<Vec<_>>())
}

fn input(messages: &[Message]) -> (String, Vec<Value>) {
    let request = ModelRequest::new(messages.to_vec());
    let mut body = Vec::new();
    let call = Call::new(&request).with_model("gemini-3.6-flash");
    Interactions::default().encode(&call, &mut body).unwrap();
    let body = String::from_utf8(body).unwrap();
    let steps = serde_json::from_str::<Value>(&body).unwrap()["input"].take();
    (body, steps.as_array().unwrap().clone())
}

fn event() -> impl Strategy<Value = Value> {
    let step = prop_oneof![
        Just(json!({ "type": "model_output" })),
        Just(json!({ "type": "model_output", "content": [{ "type": "text", "text": "a" }] })),
        Just(json!({ "type": "thought", "signature": "s" })),
        Just(json!({ "type": "function_call", "id": "f", "name": "look", "arguments": {} })),
        Just(json!({ "type": "google_search_call", "id": "g" })),
        Just(json!({ "type": "user_input", "content": [] })),
        Just(json!({})),
    ];
    let piece = prop_oneof![
        Just(json!({ "type": "text", "text": "b" })),
        Just(json!({ "type": "text_annotation_delta", "annotations": [{ "type": "x" }] })),
        Just(json!({ "type": "image", "mime_type": "image/png", "data": "iVBO" })),
        Just(json!({ "type": "thought_summary", "content": { "type": "text", "text": "c" } })),
        Just(json!({ "type": "thought_signature", "signature": "t" })),
        Just(json!({ "type": "arguments_delta", "arguments": "{}" })),
        Just(json!({ "type": "google_search_call", "arguments": {} })),
        Just(json!({})),
    ];
    let index = || 0_u64..3;
    let event = prop_oneof![
        3 => (index(), step).prop_map(|(index, step)| start(index, step)),
        5 => (index(), piece).prop_map(|(index, piece)| delta(index, piece)),
        2 => index().prop_map(stop),
        1 => Just(json!({ "event_type": "interaction.status_update", "status": "in_progress" })),
    ];
    (event, any::<bool>()).prop_map(|(mut event, has_index)| {
        if !has_index {
            event.as_object_mut().unwrap().remove("index");
        }
        event
    })
}

/// Returns the response, unless a call has no name.
fn read(events: &[Value]) -> Option<ModelResponse> {
    let request = ModelRequest::default();
    let mut decoder = Interactions::default().decoder(&Call::new(&request));
    let mut pieces: Vec<Piece> = Vec::new();
    for event in events {
        let read = decoder.event(Event::new(&event.to_string()), &mut pieces);
        assert_eq!(read.unwrap(), Progress::More, "{event}");
    }
    let last = completed("completed").to_string();
    match decoder.event(Event::new(&last), &mut pieces) {
        Ok(progress) => assert_eq!(progress, Progress::Done),
        Err(fault) => {
            assert!(fault.message().contains("without a name"), "{fault:?}");
            return None;
        }
    }
    // Nobody reads, so that there is nothing to wait for.
    let streamed = async {
        let mut attempt = Attempt::unseen();
        for piece in pieces {
            attempt.send(piece).await.unwrap();
        }
        attempt.finish().await.unwrap()
    };
    streamed
        .now_or_never()
        .map(|streamed| decoder.finish(streamed))
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn steps_are_in_order_and_nothing_is_lost(messages in conversation()) {
        let (_, steps) = input(&messages);
        let count = |kind: &str| steps.iter().filter(|step| step["type"] == kind).count();
        let calls: usize = messages.iter().map(|message| message.tool_calls().count()).sum();
        let results: usize = messages.iter().map(|message| message.tool_results().count()).sum();
        prop_assert_eq!(count("function_call"), calls);
        prop_assert_eq!(count("function_result"), results);
        for step in steps.iter().filter(|step| !step["content"].is_null()) {
            prop_assert!(!step["content"].as_array().unwrap().is_empty(), "{}", step);
        }

        // The content keeps its order, the user's and the model's apart.
        for (role, kind) in [(Role::User, "user_input"), (Role::Assistant, "model_output")] {
            let is_its = |message: &&Message| match message.role() {
                Role::Tool => role == Role::User,
                other => other == role,
            };
            let said = messages.iter().filter(is_its).flat_map(Message::parts);
            let said: Vec<_> = said.filter_map(Part::as_text).filter(|text| !text.is_empty()).collect();
            let sent = steps.iter().filter(|step| step["type"] == kind);
            let sent = sent.flat_map(|step| step["content"].as_array().unwrap());
            let sent: Vec<_> = sent.filter_map(|content| content["text"].as_str()).collect();
            prop_assert_eq!(said, sent);
        }
    }

    /// The bytes of a message depend on nothing after it.
    #[test]
    fn a_longer_conversation_begins_with_the_bytes_of_a_shorter_one(messages in conversation()) {
        let (whole, _) = input(&messages);
        for length in 0..messages.len() {
            let (start, steps) = input(&messages[..length]);
            // Content that waits for a result is written at the end, and later after the result.
            let said = steps.iter().rposition(|step| step["type"] != "user_input");
            let kept = Value::from(&steps[..said.map_or(0, |last| last + 1)]).to_string();
            let closed = &start[..start.len().min("{\"input\":".len() + kept.len() - 1)];
            prop_assert!(whole.starts_with(closed), "{}\n{}", closed, whole);
        }
    }

    /// Events in any order, with an index or without, are an answer that can be sent back.
    #[test]
    fn events_in_any_order_are_an_answer(events in prop::collection::vec(event(), 0..20)) {
        let Some(response) = read(&events) else { return Ok(()) };
        let ids: Vec<_> = response.message().tool_calls().map(|call| call.id.clone()).collect();
        let different: std::collections::HashSet<_> = ids.iter().collect();
        prop_assert_eq!(different.len(), ids.len());
        let words = events.iter().filter(|event| event["delta"]["text"] == "b").count();
        prop_assert_eq!(response.text().matches('b').count(), words);
        let (_, steps) = input(&[Message::user("Go on."), response.message().clone()]);
        let calls = steps.iter().filter(|step| step["type"] == "function_call").count();
        prop_assert_eq!(calls, ids.len());
    }
}
