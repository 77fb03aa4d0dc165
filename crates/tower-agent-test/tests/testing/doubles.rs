//! The test doubles do what they promise.

use std::future::pending;
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_agent::model::FinishReason;
use tower_agent::stream::{Delta, channel};
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Result, Usage};
use tower_agent_test::{Ended, ProbeLayer, RecordLayer, ScriptedModel, Turn};

use test_support::trace::poll_times;

fn ask(text: &str) -> ModelRequest {
    ModelRequest::new([Message::user(text)])
}

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

/// The answer, and the deltas that were sent.
async fn streamed(model: &ScriptedModel) -> (Result<ModelResponse>, Vec<Delta>) {
    let (result, events) = test_support::stream(model.clone(), ask("")).await;
    (result, test_support::deltas(events))
}

fn word(delta: &Delta) -> &str {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) => text,
        Delta::Arguments { json, .. } => json,
        Delta::ToolCall { id, .. } => id,
        _ => "?",
    }
}

fn words(deltas: &[Delta]) -> Vec<&str> {
    deltas.iter().map(word).collect()
}

#[tokio::test]
async fn a_script_is_followed_and_the_requests_are_kept() {
    let model = ScriptedModel::new([
        Turn::from_text("hi").usage(Usage::new(3, 1)),
        Turn::error(busy()),
        Turn::function(|request| Ok(ModelResponse::from_text(request.messages()[0].text()))),
    ]);
    let clone = model.clone();
    let response = clone.oneshot(ask("one")).await.unwrap();
    assert_eq!(
        (response.message().text().as_str(), response.usage().total()),
        ("hi", 4)
    );
    assert_eq!(
        model
            .clone()
            .oneshot(ask("two"))
            .await
            .unwrap_err()
            .message(),
        "busy"
    );
    assert_eq!(
        model
            .clone()
            .oneshot(ask("three"))
            .await
            .unwrap()
            .message()
            .text(),
        "three"
    );
    model.assert_done();
    let asked: Vec<_> = model
        .requests()
        .iter()
        .map(|r| r.messages()[0].text())
        .collect();
    assert_eq!(asked, ["one", "two", "three"]);
}

#[tokio::test]
async fn a_call_beyond_the_script_fails_and_no_retry_helps() {
    let model = ScriptedModel::new([Turn::from_text("hi")]);
    model.clone().oneshot(ask("")).await.unwrap();
    let error = model.clone().oneshot(ask("")).await.unwrap_err();
    assert_eq!(
        error.message(),
        "unexpected model call 2: the script ends after call 1"
    );
    assert!(!error.is_retryable());
    assert_eq!(model.requests().len(), 2);
}

#[test]
#[should_panic(expected = "the script ends after call 1, but there were 0 calls")]
fn an_unused_turn_is_reported() {
    ScriptedModel::new([Turn::from_text("hi")]).assert_done();
}

#[test]
#[should_panic(expected = "the script ends after call 0, but there were 1 calls")]
fn a_call_beyond_the_script_is_noticed_at_the_end_too() {
    let model = ScriptedModel::new([]);
    assert!(
        poll_times(model.clone().oneshot(ask("")), 1)
            .unwrap()
            .is_err()
    );
    model.assert_done();
}

#[tokio::test]
async fn tool_calls_are_numbered_through_the_script() {
    let model = ScriptedModel::new([
        Turn::tool("add", json!({ "a": 1 })).and_tool("add", json!({ "a": 2 })),
        Turn::from_text("and").and_tool("sub", json!({})),
    ]);
    let mut ids = Vec::new();
    for _ in 0..2 {
        let response = model.clone().oneshot(ask("")).await.unwrap();
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
        let calls = response.message().tool_calls();
        ids.extend(calls.map(|call| format!("{} {} {}", call.id, call.name, call.arguments)));
    }
    assert_eq!(
        ids,
        [
            r#"call_1 add {"a":1}"#,
            r#"call_2 add {"a":2}"#,
            "call_3 sub {}"
        ]
    );
}

#[tokio::test]
async fn a_request_with_a_sink_is_streamed() {
    let turns = [
        Turn::from_text("grüß dich")
            .and_tool("add", json!({ "a": 1 }))
            .usage(Usage::new(3, 1)),
        Turn::from_text("again"),
    ];
    let model = ScriptedModel::new(turns).chunk_size(5);
    let (response, deltas) = streamed(&model).await;
    let response = response.unwrap();
    assert_eq!(
        words(&deltas),
        ["grüß ", "dich", "call_1", r#"{"a":"#, "1}"]
    );
    assert_eq!((response.attempt(), response.usage().total()), (Some(0), 4));
    assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
    assert_eq!(response.message().text(), "grüß dich");
    assert_eq!(
        response.message().tool_calls().next().unwrap().arguments,
        json!({ "a": 1 })
    );
    assert_eq!(model.oneshot(ask("")).await.unwrap().attempt(), None);
}

#[tokio::test]
async fn a_turn_breaks_off_after_some_deltas() {
    let model = ScriptedModel::new([
        Turn::from_text("abcdef").failing_after(2, busy()),
        Turn::from_text("abcdef").failing_after(0, busy()),
        Turn::from_text("abcdef").failing_after(9, busy()),
        Turn::from_text("abcdef").failing_after(2, busy()),
    ])
    .chunk_size(2);
    for sent in [vec!["ab", "cd"], vec![], vec!["ab", "cd", "ef"]] {
        let (result, deltas) = streamed(&model).await;
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Overloaded);
        assert_eq!(words(&deltas), sent);
    }
    assert_eq!(
        model.oneshot(ask("")).await.unwrap_err().kind(),
        ErrorKind::Overloaded
    );
}

#[test]
fn a_turn_hangs() {
    let model = ScriptedModel::new([Turn::pending(), Turn::from_text("ab").hanging_after(1)]);
    assert!(poll_times(model.clone().oneshot(ask("")), 9).is_none());
    let (sink, events) = channel(8);
    assert!(poll_times(model.clone().oneshot(ask("").with_delta_sender(sink)), 9).is_none());
    let seen = poll_times(events.collect::<Vec<_>>(), 1).expect("the call was dropped");
    assert_eq!(test_support::deltas(seen), [Delta::Text("ab".into())]);
    model.assert_done();
}

#[tokio::test(start_paused = true)]
async fn latency_is_paused_time() {
    let start = Instant::now();
    let model = ScriptedModel::always(Turn::from_text("hi").latency(Duration::from_secs(5)));
    for _ in 0..2 {
        assert_eq!(
            model
                .clone()
                .oneshot(ask(""))
                .await
                .unwrap()
                .message()
                .text(),
            "hi"
        );
    }
    assert_eq!(start.elapsed(), Duration::from_secs(10));
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_record_tells_how_each_call_ended() {
    let record = RecordLayer::new();
    let turns = [
        Turn::from_text("hi"),
        Turn::error(busy()),
        Turn::pending(),
        Turn::pending(),
    ];
    let mut model = record.clone().layer(ScriptedModel::new(turns));
    model.call(ask("one")).await.unwrap();
    model.clone().oneshot(ask("two")).await.unwrap_err();
    drop(model.call(ask("three")));
    let running = model.call(ask("four"));

    assert!(matches!(
        &record.calls()[..],
        [
            Ended::Done(_),
            Ended::Failed(_),
            Ended::Dropped,
            Ended::Running
        ]
    ));
    assert_eq!(record.requests()[2].messages()[0].text(), "three");
    assert_eq!(record.responses().len(), 1);
    drop(running);
    assert!(matches!(record.calls()[3], Ended::Dropped));
}

/// A record does not keep a stream open.
#[tokio::test]
async fn a_recorded_stream_ends() {
    let record = RecordLayer::new();
    let (sink, events) = channel(8);
    let model = record
        .clone()
        .layer(ScriptedModel::new([Turn::from_text("hi")]));
    model
        .oneshot(ask("").with_delta_sender(sink))
        .await
        .unwrap();
    let read = events.collect::<Vec<_>>();
    assert_eq!(
        test_support::deltas(poll_times(read, 1).expect("it ends")).len(),
        1
    );
    assert_eq!(record.requests().len(), 1);
}

#[test]
fn a_probe_counts() {
    let probe = ProbeLayer::new();
    let mut service = probe.layer(service_fn(async |hang: bool| {
        if hang {
            pending::<()>().await;
        }
        Ok::<_, Error>(())
    }));
    poll_times(service.ready(), 1).unwrap().unwrap();
    let mut clone = service.clone();
    let (one, two) = (service.call(true), clone.call(true));
    assert_eq!(
        (probe.calls(), probe.violations()),
        (2, 1),
        "a clone starts unready"
    );
    assert_eq!(
        (probe.in_flight(), probe.max_in_flight(), probe.cancelled()),
        (2, 2, 0)
    );
    drop(one);
    poll_times(two, 1);
    assert_eq!(
        (probe.in_flight(), probe.max_in_flight(), probe.cancelled()),
        (0, 2, 2)
    );

    let three = service.call(false);
    assert_eq!(probe.violations(), 2, "a call uses readiness up");
    poll_times(three, 1).unwrap().unwrap();
    assert_eq!((probe.in_flight(), probe.cancelled()), (0, 2));
}

#[tokio::test]
async fn a_probe_holds_readiness_back() {
    let probe = ProbeLayer::new().pending_polls(1);
    let mut service = probe.layer(service_fn(async |(): ()| Ok::<_, Error>(())));
    assert!(poll_times(service.ready(), 1).is_none());
    assert!(poll_times(service.ready(), 1).is_some());
    assert!(
        poll_times(service.ready(), 1).is_some(),
        "ready until it is called"
    );
    service.call(()).await.unwrap();

    probe.hold();
    let waiting = tokio::spawn(async move { service.ready().await?.call(()).await });
    tokio::task::yield_now().await;
    assert_eq!((waiting.is_finished(), probe.calls()), (false, 1));
    probe.release();
    waiting.await.unwrap().unwrap();
    assert_eq!((probe.calls(), probe.violations()), (2, 0));
}
