//! Retries and fallbacks, in the middle of a stream too.

use serde_json::json;
use tokio::time::Instant;
use tower_agent::callback::before_model;
use tower_agent::stream::EventKind;
use tower_agent::testing::{ProbeLayer, ScriptedModel, Turn};
use tower_agent::{Agent, Error, ErrorKind};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_layer::Layer;

use crate::known_failures::{busy, count, ms, read, shown};
use test_support::log::Log;

#[tokio::test(start_paused = true)]
async fn a_retry_on_a_stream_does_not_print_hello_hello_world() {
    let turns = || {
        [
            Turn::from_text("Hello world").failing_after(2, busy()),
            Turn::from_text("Hello world"),
        ]
    };
    for restart in [false, true] {
        let agent = Agent::builder(ScriptedModel::new(turns()).chunk_size(3))
            .model_layer(CallRetryLayer::new().restart_streams(restart))
            .build()
            .unwrap();

        let (events, response) = read(&agent).await;

        let discarded = events
            .iter()
            .position(|event| matches!(event.kind, EventKind::AttemptDiscarded { .. }));
        let behind = &events[discarded.expect("what was seen is taken back")..];
        match restart {
            false => assert_eq!(response.unwrap_err().kind(), ErrorKind::Overloaded),
            true => assert_eq!(response.unwrap().text(), "Hello world"),
        }
        assert_eq!(shown(behind), if restart { "Hello world" } else { "" });
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_before_the_first_word_starts_the_message_once() {
    let model = ScriptedModel::new([Turn::error(busy()), Turn::from_text("Hello")]);
    let agent = Agent::builder(model)
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();

    let (events, response) = read(&agent).await;

    assert_eq!(response.unwrap().text(), "Hello");
    assert_eq!(
        count(&events, |kind| matches!(kind, EventKind::TextStart { .. })),
        1
    );
    assert_eq!(
        count(&events, |kind| matches!(
            kind,
            EventKind::AttemptDiscarded { .. }
        )),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_lost_late_in_a_run_costs_one_call_and_no_tool_runs_again() {
    let log = Log::default();
    let look = |n: u8| Turn::tool("look", json!(n));
    let cut = Turn::from_text("Now I").failing_after(1, Error::new(ErrorKind::Connection, "lost"));
    let model = ScriptedModel::new([
        look(1),
        look(2),
        look(3),
        cut,
        Turn::from_text("Now I know."),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(log.tool("look"))
        .model_layer(CallRetryLayer::new().restart_streams(true))
        .build()
        .unwrap();

    let (_, response) = read(&agent).await;

    assert_eq!(response.unwrap().text(), "Now I know.");
    assert_eq!(log.all(), ["look 1", "look 2", "look 3"]);
    model.assert_done();
}

#[tokio::test]
async fn an_overload_in_the_middle_of_a_stream_is_answered_by_another_model() {
    let first = ScriptedModel::new([Turn::from_text("I am the first").failing_after(2, busy())]);
    let other = ScriptedModel::new([Turn::from_text("I am another")]);
    let model = Fallback::new(first).or(other).restart_streams(true);
    let agent = Agent::builder(model).build().unwrap();

    let (events, response) = read(&agent).await;

    assert_eq!(response.unwrap().text(), "I am another");
    assert_eq!(
        count(&events, |kind| matches!(
            kind,
            EventKind::AttemptDiscarded { .. }
        )),
        1
    );
    assert!(shown(&events).ends_with("I am another"));
}

#[tokio::test(start_paused = true)]
async fn no_retry_and_no_fallback_swallows_an_abort_of_a_guard() {
    let (first, other) = (
        ScriptedModel::always(Turn::from_text("1")),
        ProbeLayer::new(),
    );
    let guarded = before_model(|_| Err::<(), _>(Error::abort("no"))).layer(first);
    let model = Fallback::new(guarded)
        .or(other.layer(ScriptedModel::always(Turn::from_text("2"))))
        .fall_back_if(|_| true);
    let probe = ProbeLayer::new();
    let agent = Agent::builder(model)
        .model_layer(CallRetryLayer::new().retry_if(|_| true))
        .model_layer(probe.clone())
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!((probe.calls(), other.calls()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_the_server_asks() {
    let limited = Error::new(ErrorKind::RateLimited, "wait").with_retry_after(ms(20_000));
    let model = ScriptedModel::new([Turn::error(limited), Turn::from_text("now")]);
    let agent = Agent::builder(model)
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    let start = Instant::now();

    assert_eq!(agent.run("?").await.unwrap().text(), "now");
    assert_eq!(start.elapsed(), ms(20_000));
}
