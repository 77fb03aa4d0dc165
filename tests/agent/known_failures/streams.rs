//! What is seen of a stream, and what a guard keeps from it.

use serde_json::json;
use tokio::time::Instant;
use tower_agent::callback::{Outcome, after_model, after_tool, before_model};
use tower_agent::stream::{Delta, EventKind, Mapper};
use tower_agent::testing::{ProbeLayer, ScriptedModel, Turn};
use tower_agent::{
    Action, Agent, Callback, Error, ErrorKind, ModelRequest, ModelResponse, Result, ToolResponse,
};
use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Verdict};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_layer::Layer;

use crate::known_failures::{busy, count, ms, read, shown};
use test_support::log::Log;

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

async fn no_bomb(_: ModelRequest, response: ModelResponse) -> Result<Verdict> {
    Ok(match response.message().text().contains("bomb") {
        true => Verdict::trip("no bombs"),
        false => Verdict::Pass,
    })
}

async fn trips_late(_: ModelRequest) -> Result<Verdict> {
    tokio::time::sleep(ms(500)).await;
    Ok(Verdict::trip("no"))
}

#[tokio::test]
async fn an_answer_that_a_check_refuses_is_never_streamed() {
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text(
        "Take a pipe for the bomb.",
    )]))
    .model_layer(Guardrail::after(no_bomb).with_on_trip(OnTrip::answer("No.")))
    .build()
    .unwrap();

    let (events, response) = read(&agent).await;

    assert_eq!(
        (shown(&events), response.unwrap().text()),
        ("No.".into(), "No.".into())
    );
}

#[tokio::test]
async fn a_redactor_waits_while_a_match_may_still_grow() {
    let model = ScriptedModel::new([Turn::from_text("Ask jo@example.com or me.")]).chunk_size(1);
    let redact = Redact::new([Detector::email()]).unwrap();
    let agent = Agent::builder(model)
        .global_callbacks(redact)
        .build()
        .unwrap();

    let (events, response) = read(&agent).await;

    assert_eq!(shown(&events), "Ask [email] or me.");
    assert_eq!(response.unwrap().text(), "Ask [email] or me.");
    assert_eq!(
        count(&events, |kind| matches!(
            kind,
            EventKind::ResponseReplaced { .. }
        )),
        0
    );
}

#[tokio::test]
async fn callbacks_run_alike_whether_streamed_or_not() {
    let mut runs = Vec::new();
    for streamed in [false, true] {
        let log = Log::default();
        let [before, after, tool] = [log.clone(), log.clone(), log.clone()];
        let model = ScriptedModel::new([Turn::tool("look", json!(1)), Turn::from_text("Seen.")]);
        let agent = Agent::builder(model)
            .tool(log.tool("look"))
            .on_model(before_model(move |_| before.note("before the model")))
            .on_model(after_model(move |_, response: &ModelResponse| {
                after.note(format!("after `{}`", response.message().text()));
            }))
            .on_tool(after_tool(move |_, response: &ToolResponse| {
                tool.note(response.value())
            }))
            .build()
            .unwrap();
        match streamed {
            false => drop(agent.run("?").await.unwrap()),
            true => drop(read(&agent).await.1.unwrap()),
        }
        runs.push(log.all());
    }
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0].len(), 6);
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

    let (events, response) = read(&agent).await;

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

#[tokio::test]
async fn an_abort_in_the_middle_of_a_stream_ends_it_and_says_so() {
    let probe = ProbeLayer::new();
    let agent = Agent::builder(probe.layer(ScriptedModel::new([Turn::from_text("one two three")])))
        .on_model(before_model(|request| {
            request.map_deltas(|| Stops {
                at: "tw",
                with: Error::abort("enough"),
            });
        }))
        .build()
        .unwrap();

    let (events, response) = read(&agent).await;

    assert_eq!(response.unwrap_err().kind(), ErrorKind::Aborted);
    let EventKind::RunFailed { error } = &events.last().unwrap().kind else {
        panic!("it failed")
    };
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "enough")
    );
    assert!(!shown(&events).contains("three"));
    assert_eq!(probe.in_flight(), 0);
}

#[tokio::test]
async fn a_logger_sees_failures_too() {
    struct Memory(Log);
    impl Callback<ModelRequest> for Memory {
        fn on_end(&self, _: &ModelRequest, outcome: Outcome<'_, ModelResponse>) {
            if let Outcome::Failed(error) = outcome {
                self.0.note(error.message());
            }
        }

        async fn before(&self, _: &mut ModelRequest) -> Result<Action<ModelResponse>> {
            Ok(Action::Continue)
        }
    }
    let log = Log::default();
    let agent = Agent::builder(ScriptedModel::new([
        Turn::from_text("half").failing_after(1, busy())
    ]))
    .on_model(Memory(log.clone()))
    .build()
    .unwrap();

    read(&agent).await.1.unwrap_err();

    assert_eq!(log.all(), ["busy"]);
}

#[tokio::test(start_paused = true)]
async fn no_tool_runs_before_the_verdict_of_a_check_beside_the_model() {
    let (log, probe) = (Log::default(), ProbeLayer::new());
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk"))]);
    let agent = Agent::builder(probe.layer(model))
        .tool(log.tool("wipe"))
        .model_layer(Guardrail::beside(trips_late))
        .build()
        .unwrap();

    let (events, response) = read(&agent).await;

    assert_eq!(response.unwrap_err().kind(), ErrorKind::Callback);
    assert!(log.all().is_empty());
    assert_eq!(
        count(&events, |kind| matches!(
            kind,
            EventKind::ToolCallStart { .. }
        )),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_that_trips_beside_the_model_drops_its_call() {
    let probe = ProbeLayer::new();
    let agent = Agent::builder(probe.layer(ScriptedModel::new([Turn::pending()])))
        .model_layer(Guardrail::beside(trips_late))
        .build()
        .unwrap();
    let start = Instant::now();

    agent.run("?").await.unwrap_err();

    assert_eq!(start.elapsed(), ms(500));
    assert_eq!((probe.cancelled(), probe.in_flight()), (1, 0));
}
