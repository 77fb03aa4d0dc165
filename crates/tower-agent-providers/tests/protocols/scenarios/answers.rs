//! Answers, plain and streamed.

use serde_json::{Value, json};
use tower_agent::Usage;
use tower_agent::model::FinishReason;
use tower_agent::stream::Delta;

use super::{assert_said, both, read};
use crate::answer::{Answer, End, call, reasoning, refusal, text};
use crate::column::{Column, events_of, model, streamed};
use crate::server::{Server, json as reply};
use tower_agent::ModelRequest;
use tower_agent_providers::HttpModel;
use tower_agent_providers::protocol::Protocol;

fn greeting() -> Answer {
    Answer::new([text(&["Hel", "lö, ", "🦀", "!"])])
}

pub(crate) async fn text_streams_in_its_deltas<C: Column>() {
    let read = read::<C>(streamed::<C>(&greeting())).await;
    assert_eq!(read.texts(), ["Hel", "lö, ", "🦀", "!"]);
    let response = read.response.unwrap();
    assert_eq!(response.attempt(), Some(0));
    assert_eq!(response.metadata().request_id.as_deref(), Some("req_1"));
    for response in [response].into_iter().chain(both::<C>(&greeting()).await) {
        assert_said::<C>(&response, &greeting());
        assert_eq!(response.finish_reason(), &FinishReason::Stop);
        assert_eq!(response.usage(), C::usage());
        assert_eq!(response.metadata().status, Some(200));
        let model = C::HAS_MODEL.then_some("test-model-2026");
        assert_eq!(response.metadata().model.as_deref(), model);
    }
}

pub(crate) async fn a_tool_call<C: Column>() {
    let answer = Answer::new([call("call_1", "weather", &["{\"city\":\"Tromsø\"}"])]);
    for response in both::<C>(&answer).await {
        assert_said::<C>(&response, &answer);
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
        assert_eq!(response.usage(), C::usage());
        let call = response.message().tool_calls().next().unwrap();
        assert_eq!(call.arguments.as_str(), "{\"city\":\"Tromsø\"}");
        assert!(!call.id.is_empty());
    }
}

pub(crate) async fn arguments_in_fragments<C: Column>() {
    let fragments: Vec<_> = "{\"city\": \"Tromsø 🦀\", \"n\": [1, 2.5, null, \"\\u00e9\\\"\"]}"
        .chars()
        .collect();
    let fragments: Vec<_> = fragments.iter().map(char::to_string).collect();
    let fragments: Vec<_> = fragments.iter().map(|fragment| &**fragment).collect();
    let answer = Answer::new([call("call_1", "weather", &fragments)]);
    for response in both::<C>(&answer).await {
        assert_said::<C>(&response, &answer);
    }
    let read = read::<C>(streamed::<C>(&answer)).await;
    assert!(
        matches!(&read.deltas[0], Delta::ToolCall { index: 0, name, .. } if &**name == "weather")
    );
    let arguments = read.deltas.iter().filter_map(|delta| match delta {
        Delta::Arguments { index: 0, json } => Some(&**json),
        _ => None,
    });
    let arguments: String = arguments.collect();
    let sent: serde_json::Value = serde_json::from_str(&fragments.concat()).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&arguments).unwrap(),
        sent
    );
}

pub(crate) async fn arguments_that_are_empty<C: Column>() {
    for arguments in [&[][..], &[""], &["{}"]] {
        let answer = Answer::new([call("call_1", "now", arguments)]);
        for response in both::<C>(&answer).await {
            assert_said::<C>(&response, &answer);
        }
    }
}

pub(crate) async fn parallel_calls_stay_apart<C: Column>() {
    let answer = Answer::new([
        call("call_1", "weather", &["{\"city\":", "\"Oslo\"}"]),
        call("call_2", "now", &[]),
        call("call_3", "weather", &["{\"city\":\"", "Bergen\"}"]),
    ]);
    for response in both::<C>(&answer).await {
        assert_said::<C>(&response, &answer);
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
        let mut ids: Vec<_> = response
            .message()
            .tool_calls()
            .map(|call| &*call.id)
            .collect();
        ids.dedup();
        assert_eq!(ids.len(), 3, "{ids:?}");
    }
}

pub(crate) async fn parts_keep_their_order<C: Column>() {
    let answer = Answer::new([
        reasoning(&["First ", "this."], "secret_1"),
        text(&["I ", "look."]),
        call("call_1", "look", &["{}"]),
    ]);
    for response in both::<C>(&answer).await {
        assert_said::<C>(&response, &answer);
    }
    let read = read::<C>(streamed::<C>(&answer)).await;
    assert_eq!(read.thoughts(), "First this.");
    assert_eq!(read.texts(), ["I ", "look."]);
}

pub(crate) async fn a_refusal<C: Column>() {
    let answer = Answer::new([refusal(&["I can", "not."])]);
    for response in both::<C>(&answer).await {
        assert_said::<C>(&response, &answer);
        assert_eq!(response.finish_reason(), &FinishReason::Refusal);
    }
    assert_eq!(
        read::<C>(streamed::<C>(&answer)).await.texts(),
        ["I can", "not."]
    );
}

pub(crate) async fn why_the_model_stopped<C: Column>() {
    for (end, reason) in [
        (End::Natural, FinishReason::Stop),
        (End::Length, FinishReason::Length),
        (End::ContentFilter, FinishReason::ContentFilter),
    ] {
        let answer = Answer { end, ..greeting() };
        for response in both::<C>(&answer).await {
            assert_said::<C>(&response, &answer);
            assert_eq!(response.finish_reason(), &reason);
            assert_eq!(response.usage(), C::usage());
        }
    }
}

pub(crate) async fn an_unknown_event_is_ignored<C: Column>() {
    let answer = Answer::new([text(&["a", "b"]), call("call_1", "now", &["{", "}"])]);
    let events = C::events(&answer);
    let surprised = events
        .iter()
        .flat_map(|event| [C::unknown_event(), event.clone()]);
    let read = read::<C>(events_of::<C>(surprised)).await;
    assert_said::<C>(&read.response.unwrap(), &answer);
}

pub(crate) async fn fields_that_are_missing<C: Column>() {
    let answer = Answer::new([text(&["a", "b"]), call("call_1", "now", &["{}"])]);
    let read = read::<C>(events_of::<C>(C::sparse_events(&answer))).await;
    let server = Server::start([reply(200, &C::sparse_body(&answer))]).await;
    let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
    for response in [read.response.unwrap(), plain.unwrap()] {
        assert_said::<C>(&response, &answer);
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    }
}

pub(crate) async fn usage_that_is_missing<C: Column>() {
    let answer = Answer {
        has_usage: false,
        ..greeting()
    };
    for response in both::<C>(&answer).await {
        assert_said::<C>(&response, &answer);
        assert_eq!(response.usage(), Usage::default());
    }
}

/// Writes a field that nobody knows into every object but arguments.
fn surprise(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if !matches!(&**name, "args" | "arguments" | "input") {
                    surprise(value);
                }
            }
            fields.insert("surprise".into(), json!({ "new": [null, 1, "field"] }));
            // Known fields with values that are not.
            for name in ["service_tier", "system_fingerprint", "object", "logprobs"] {
                fields.insert(name.into(), json!({ "new": "value" }));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(surprise),
        _ => {}
    }
}

/// The event with a field that nobody knows, if it holds JSON.
fn surprised(event: &str) -> String {
    let Some(start) = event.find('{') else {
        return event.to_owned();
    };
    let (data, end) = event[start..].split_once('\n').unwrap();
    let mut data: Value = serde_json::from_str(data).unwrap();
    surprise(&mut data);
    format!("{}{data}\n{end}", &event[..start])
}

pub(crate) async fn fields_that_are_unknown<C: Column>() {
    let answer = Answer::new([
        text(&["a", "b"]),
        call("call_1", "now", &["{\"at\":", "1}"]),
    ]);
    let events = C::events(&answer);
    let read = read::<C>(events_of::<C>(events.iter().map(|event| surprised(event)))).await;
    let mut body = C::body(&answer);
    surprise(&mut body);
    let server = Server::start([reply(200, &body)]).await;
    let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
    for response in [read.response.unwrap(), plain.unwrap()] {
        assert_said::<C>(&response, &answer);
        assert_eq!(response.usage(), C::usage());
    }
}

/// Writes `null` for what a value lacks of another.
fn fill_with_nulls(value: &mut Value, whole: &Value) {
    match (value, whole) {
        (Value::Object(fields), Value::Object(whole)) => {
            for (name, whole) in whole {
                match fields.get_mut(name) {
                    Some(value) => fill_with_nulls(value, whole),
                    None => drop(fields.insert(name.clone(), Value::Null)),
                }
            }
        }
        (Value::Array(values), Value::Array(whole)) => {
            values
                .iter_mut()
                .zip(whole)
                .for_each(|(value, whole)| fill_with_nulls(value, whole));
        }
        _ => {}
    }
}

pub(crate) async fn fields_that_are_null<C: Column>() {
    let answer = Answer::new([text(&["a", "b"]), call("call_1", "now", &["{}"])]);
    let mut body = C::sparse_body(&answer);
    fill_with_nulls(&mut body, &C::body(&answer));
    let server = Server::start([reply(200, &body)]).await;
    let plain = test_support::call(model::<C>(&server), ModelRequest::default())
        .await
        .unwrap();
    assert_said::<C>(&plain, &answer);
    assert_eq!(plain.finish_reason(), &FinishReason::ToolCalls);
    assert_eq!(plain.usage(), Usage::default());
}

pub(crate) async fn the_usage_is_kept_as_it_is_stated_if_it_was_to_be<C: Column>() {
    let answer = Answer::new([text(&["ok"])]);
    let body = C::body(&answer);
    let replies = [
        reply(200, &body),
        events_of::<C>(C::events(&answer)),
        reply(200, &body),
    ];
    let server = Server::start(replies).await;
    let builder = HttpModel::<C::Protocol, _>::builder().base_url(&server.base_url);
    let keeping = builder
        .api_key("")
        .model("test-model")
        .keep_stated_usage(true);
    let keeping = keeping.build().unwrap();
    let plain = test_support::call(keeping.clone(), ModelRequest::default())
        .await
        .unwrap();
    let (streamed, _) = test_support::stream(keeping, ModelRequest::default()).await;
    let mut places = C::Protocol::USAGE.iter();
    let stated = places.find_map(|place| body.pointer(place)).unwrap();
    assert_eq!(plain.metadata().stated_usage.as_ref(), Some(stated));
    let streamed = streamed.unwrap();
    assert!(streamed.metadata().stated_usage.is_some());

    let plain = test_support::call(model::<C>(&server), ModelRequest::default())
        .await
        .unwrap();
    assert_eq!(plain.metadata().stated_usage, None);
}
