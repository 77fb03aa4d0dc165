//! Retries and fallbacks of calls that stream, and how long a retry waits.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;
use tower::util::rng::Rng;
use tower::{Layer, ServiceExt};
use tower_agent::callback::before_model;
use tower_agent::message::ToolCall;
use tower_agent::stream::{Delta, EventKind, Mapper};
use tower_agent::{Agent, Effect, Error, ErrorKind, Result, Tool, ToolRequest};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

use crate::guards::watch::{busy, count, ms, read_events, shown};
use test_support::log::Log;

#[tokio::test(start_paused = true)]
async fn a_retry_that_does_not_call_a_tool_again_says_why() {
    let busy = || Err::<(), _>(Error::new(ErrorKind::Overloaded, "busy"));
    let pay = Tool::function("pay", "Pays.", move |_: ()| busy()).layer(CallRetryLayer::new());
    let call = |tool: Tool| {
        let request = ToolRequest::new(ToolCall::new("call", "pay", json!({})))
            .with_declaration(Some(tool.declaration().clone()));
        tool.into_service().oneshot(request)
    };
    let error = call(pay.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let told = error.to_string();
    assert!(
        told.contains("tool call `pay`") && told.contains("after 1 attempt"),
        "{told}"
    );
    assert!(
        told.contains("not retried: the tool's effect is `Mutating`"),
        "{told}"
    );

    let error = call(pay.effect(Effect::Idempotent)).await.unwrap_err();
    assert_eq!(error.message(), "busy (after 3 attempts)");
}

/// Fails at a delta that has these words.
struct Stops {
    at: &'static str,
    with: Error,
}

impl Mapper for Stops {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        match &delta {
            Delta::Text(text) if text.contains(self.at) => Err(self.with.clone()),
            _ => {
                out.push(delta);
                Ok(())
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_callback_can_stop_a_stream_in_the_middle_and_have_it_made_again() {
    let probe = ProbeLayer::new();
    let model = ScriptedModel::new([
        Turn::from_text("xx bad").hanging_after(6),
        Turn::from_text("good"),
    ]);
    let agent = Agent::builder(probe.layer(model.chunk_size(1)))
        .model_layer(
            CallRetryLayer::new()
                .retry_if(|_| true)
                .restart_streams(true),
        )
        .on_model(before_model(|request| {
            request.map_deltas(|| Stops {
                at: "b",
                with: Error::new(ErrorKind::Other, "bad"),
            });
        }))
        .build()
        .unwrap();

    let (events, response) = read_events(&agent).await;

    assert_eq!(response.unwrap().text(), "good");
    assert_eq!(shown(&events), "xx good");
    assert_eq!(
        count(&events, |kind| matches!(
            kind,
            EventKind::AttemptDiscarded { .. }
        )),
        1
    );
    assert_eq!((probe.calls(), probe.in_flight()), (2, 0));
}

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

        let (events, response) = read_events(&agent).await;

        let discarded = events
            .iter()
            .position(|event| matches!(event.kind, EventKind::AttemptDiscarded { .. }));
        let behind = &events[discarded.expect("what was seen is taken back")..];
        if restart {
            assert_eq!(response.unwrap().text(), "Hello world")
        } else {
            assert_eq!(response.unwrap_err().kind(), ErrorKind::Overloaded)
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

    let (events, response) = read_events(&agent).await;

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

    let (_, response) = read_events(&agent).await;

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

    let (events, response) = read_events(&agent).await;

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

const SECONDS: fn(u64) -> Duration = Duration::from_secs;

/// Always the same part of what may be waited.
#[derive(Clone)]
struct Part(f64);

impl Rng for Part {
    fn next_u64(&mut self) -> u64 {
        (self.0 * u64::MAX as f64) as u64
    }

    fn next_f64(&mut self) -> f64 {
        self.0
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_half_a_second_at_first_and_never_more_than_thirty() {
    let failing = (0..9).map(|_| Turn::error(busy()));
    let model = ScriptedModel::new(failing.chain([Turn::from_text("done")]));
    let generous = tower::retry::budget::TpsBudget::new(SECONDS(10), 100, 1.0);
    let retry = CallRetryLayer::new()
        .max_attempts(10)
        .rng(Part(1.0))
        .budget(generous);
    let began = Instant::now();
    let agent = Agent::builder(model).model_layer(retry).build().unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "done");

    // 0.5, 1, 2, 4, 8 and 16 seconds, and then 30 and 30 and 30.
    assert_eq!(began.elapsed(), Duration::from_millis(31_500 + 3 * 30_000));
}
