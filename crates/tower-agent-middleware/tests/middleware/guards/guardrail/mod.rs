//! Guardrails: before, beside and after a model call.

mod closed;
mod streams;

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::{Layer, ServiceExt};
use tower_agent::callback::on_model_error;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{
    Agent, AgentResponse, Error, ErrorKind, Message, ModelRequest, ModelResponse, Recovery,
    Request, Result, RunStream, Tool,
};
use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Tripped, Verdict};
use tower_agent_test::{ProbeLayer, ScriptedModel, Turn};

/// Returns whether an event shows a part of an answer, or of a tool.
fn is_of_answer(event: &Event) -> bool {
    matches!(
        event.kind,
        EventKind::TextStart { .. }
            | EventKind::ReasoningStart { .. }
            | EventKind::ToolCallStart(_)
            | EventKind::ToolResult(_)
            | EventKind::AttemptDiscarded { .. }
            | EventKind::ResponseReplaced { .. }
    )
}

fn text_of(events: &[Event]) -> String {
    let text = |event: &Event| match &event.kind {
        EventKind::TextDelta { text, .. } => Some(text.clone()),
        _ => None,
    };
    events.iter().filter_map(text).collect()
}

/// Reads what there is without waiting.
fn read_now(run: &mut RunStream) -> Vec<Event> {
    std::iter::from_fn(|| run.next().now_or_never().flatten()).collect()
}

async fn read(mut run: RunStream) -> (Vec<Event>, Result<AgentResponse>) {
    let events = run.by_ref().collect().await;
    (events, run.response().await)
}

type Told = oneshot::Receiver<Result<Verdict>>;

/// A check beside the call, whose first verdict the test sets; later ones pass.
fn told() -> (oneshot::Sender<Result<Verdict>>, Guardrail) {
    let (tell, told) = oneshot::channel();
    let told: Arc<Mutex<Option<Told>>> = Arc::new(Mutex::new(Some(told)));
    let guardrail = Guardrail::beside(move |_| {
        let told = told.lock().unwrap().take();
        async move {
            match told {
                Some(told) => told.await.expect("a verdict"),
                None => Ok(Verdict::Pass),
            }
        }
    });
    (tell, guardrail)
}

/// A tool that counts its calls.
fn counting(calls: &Arc<AtomicUsize>) -> Tool {
    let calls = calls.clone();
    Tool::function("count", "Counts.", move |_: Value| {
        calls.fetch_add(1, Ordering::SeqCst)
    })
}

fn tripped(error: &Error) -> &str {
    &error.downcast_ref::<Tripped>().expect("a trip").reason
}

#[tokio::test]
async fn before_the_call_a_check_that_trips_keeps_the_model_from_it() {
    let model = ScriptedModel::new([Turn::from_text("hi")]);
    let guardrail = Guardrail::before(|request: ModelRequest| async move {
        assert!(
            request.delta_sender().is_none(),
            "nothing of a check is seen"
        );
        match request.messages()[0].text().as_str() {
            "hello" => Verdict::Pass,
            _ => Verdict::trip("rude"),
        }
    });
    let agent = Agent::builder(model.clone())
        .model_layer(guardrail.named("manners"))
        .build()
        .unwrap();

    let error = agent.stream("you there").response().await.unwrap_err();
    assert_eq!(model.requests().len(), 0);
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Denied, false)
    );
    assert_eq!(error.message(), "guardrail `manners` tripped: rude");
    assert_eq!(error.raised_by().unwrap().callback, "manners");
    assert_eq!(tripped(&error), "rude");

    let (events, response) = read(agent.stream("hello")).await;
    assert_eq!(
        (text_of(&events).as_str(), response.unwrap().text().as_str()),
        ("hi", "hi")
    );
}

#[tokio::test]
async fn beside_the_call_nothing_is_seen_and_no_tool_runs_before_the_verdict() {
    for passes in [true, false] {
        let calls = Arc::default();
        let model = ScriptedModel::new([
            Turn::from_text("thinking of it").and_tool("count", json!({})),
            Turn::from_text("done"),
        ]);
        let (tell, guardrail) = told();
        let probe = ProbeLayer::new();
        let agent = Agent::builder(model.clone())
            .tool(counting(&calls))
            .model_layer(guardrail)
            .model_layer(probe.clone())
            .build()
            .unwrap();

        let mut run = agent.stream("?");
        let early = read_now(&mut run);
        assert_eq!(probe.in_flight(), 1, "the model is at work");
        assert!(!early.iter().any(is_of_answer), "{early:?}");
        assert_eq!(calls.load(Ordering::SeqCst), 0);

        let verdict = if passes {
            Verdict::Pass
        } else {
            Verdict::trip("no")
        };
        tell.send(Ok(verdict)).unwrap();
        let (late, response) = read(run).await;

        if passes {
            assert_eq!(text_of(&late), "thinking of itdone");
            assert_eq!(
                (response.unwrap().text().as_str(), probe.cancelled()),
                ("done", 0)
            );
            assert_eq!(calls.load(Ordering::SeqCst), 1);
        } else {
            assert_eq!(tripped(&response.unwrap_err()), "no");
            assert!(!late.iter().any(is_of_answer), "{late:?}");
            assert_eq!((calls.load(Ordering::SeqCst), probe.cancelled()), (0, 1));
        }
        assert_eq!(probe.violations(), 0);
    }
}

#[tokio::test]
async fn beside_a_call_that_is_not_streamed_its_answer_waits_too() {
    let calls = Arc::default();
    let model = ScriptedModel::new([Turn::tool("count", json!({})), Turn::from_text("done")]);
    let (tell, guardrail) = told();
    let agent = Agent::builder(model.clone())
        .tool(counting(&calls))
        .model_layer(guardrail)
        .build()
        .unwrap();

    let mut run = agent.run("?");
    assert!((&mut run).now_or_never().is_none());
    assert_eq!(
        (model.requests().len(), calls.load(Ordering::SeqCst)),
        (1, 0)
    );
    tell.send(Ok(Verdict::Pass)).unwrap();

    assert_eq!(run.await.unwrap().text(), "done");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_check_that_trips_drops_a_call_that_hangs() {
    let probe = ProbeLayer::new();
    let (tell, guardrail) = told();
    let agent = Agent::builder(ScriptedModel::new([Turn::pending()]))
        .model_layer(guardrail)
        .model_layer(probe.clone())
        .build()
        .unwrap();

    let mut run = agent.run("?");
    assert!((&mut run).now_or_never().is_none());
    assert_eq!(probe.in_flight(), 1);
    tell.send(Ok(Verdict::trip("no"))).unwrap();

    assert_eq!(tripped(&run.await.unwrap_err()), "no");
    assert_eq!((probe.in_flight(), probe.cancelled()), (0, 1));
}

#[tokio::test]
async fn every_call_is_made_on_a_service_that_is_ready() {
    for guardrail in everywhere(|| async { Ok(Verdict::Pass) }) {
        let probe = ProbeLayer::new().pending_polls(2);
        let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
            .model_layer(guardrail)
            .model_layer(probe.clone())
            .build()
            .unwrap();
        for _ in 0..2 {
            assert_eq!(agent.run("?").await.unwrap().text(), "hi");
        }
        assert_eq!((probe.calls(), probe.violations()), (2, 0));
    }
}

#[tokio::test]
async fn a_model_in_another_task_is_held_back_too() {
    for passes in [true, false] {
        let model = ScriptedModel::new([Turn::from_text("from afar")]);
        let sent = Arc::new(Mutex::new(None));
        let spawning = tower::service_fn({
            let sent = sent.clone();
            move |request: ModelRequest| {
                let (model, sent) = (model.clone(), sent.clone());
                let task = tokio::spawn(async move {
                    let response = model.oneshot(request).await;
                    *sent.lock().unwrap() = Some(response.is_ok());
                    response
                });
                async { task.await.expect("no panic") }
            }
        });
        let (tell, guardrail) = told();
        let agent = Agent::builder(spawning)
            .model_layer(guardrail)
            .build()
            .unwrap();

        let mut run = agent.stream("?");
        let mut early = Vec::new();
        for _ in 0..10 {
            early.extend(read_now(&mut run));
            tokio::task::yield_now().await;
        }
        assert!(!early.iter().any(is_of_answer), "{early:?}");
        assert_eq!(*sent.lock().unwrap(), None);
        tell.send(Ok(if passes {
            Verdict::Pass
        } else {
            Verdict::trip("no")
        }))
        .unwrap();
        let (late, _) = read(run).await;

        assert_eq!(text_of(&late), if passes { "from afar" } else { "" });
        while sent.lock().unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(
            *sent.lock().unwrap(),
            Some(passes),
            "what goes on alone is shut out"
        );
    }
}

#[tokio::test]
async fn where_the_model_fails_the_verdict_still_comes_first() {
    let fail = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    for (verdict, kind) in [
        (Verdict::Pass, ErrorKind::Overloaded),
        (Verdict::trip("no"), ErrorKind::Aborted),
    ] {
        let (tell, guardrail) = told();
        let agent = Agent::builder(ScriptedModel::new([fail()]))
            .model_layer(guardrail.with_on_trip(OnTrip::Abort))
            .build()
            .unwrap();

        let mut run = agent.run("?");
        assert!(
            (&mut run).now_or_never().is_none(),
            "it waits for the verdict"
        );
        tell.send(Ok(verdict)).unwrap();

        assert_eq!(run.await.unwrap_err().kind(), kind);
    }
}

#[tokio::test]
async fn a_call_that_ends_the_run_does_not_wait_for_a_verdict() {
    let guardrail = Guardrail::beside(|_| pending::<Result<Verdict>>());
    let agent = Agent::builder(ScriptedModel::new([Turn::error(Error::abort("over"))]))
        .model_layer(guardrail)
        .build()
        .unwrap();

    let error = agent.run("?").now_or_never().expect("an end").unwrap_err();

    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "over")
    );
}

#[tokio::test]
async fn after_the_call_nothing_is_seen_until_the_whole_has_passed() {
    for passes in [true, false] {
        let calls = Arc::default();
        let model = ScriptedModel::new([
            Turn::from_text("a long answer").and_tool("count", json!({})),
            Turn::from_text("done"),
        ]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (tell, told) = oneshot::channel::<()>();
        let told = Arc::new(Mutex::new(Some(told)));
        let guardrail = Guardrail::after({
            let (seen, told) = (seen.clone(), told.clone());
            move |_, response: ModelResponse| {
                seen.lock().unwrap().push(response.message().text());
                let told = told.lock().unwrap().take();
                async move {
                    if let Some(told) = told {
                        told.await.unwrap();
                    }
                    if passes {
                        Verdict::Pass
                    } else {
                        Verdict::trip("no")
                    }
                }
            }
        });
        let agent = Agent::builder(model)
            .tool(counting(&calls))
            .model_layer(guardrail)
            .build()
            .unwrap();

        let mut run = agent.stream("?");
        let early = read_now(&mut run);
        assert!(!early.iter().any(is_of_answer), "{early:?}");
        assert_eq!(*seen.lock().unwrap(), ["a long answer"]);
        tell.send(()).unwrap();
        let (late, response) = read(run).await;

        if passes {
            assert_eq!(text_of(&late), "a long answerdone");
            assert_eq!(response.unwrap().text(), "done");
            let is_taken_back =
                |event: &Event| matches!(event.kind, EventKind::ResponseReplaced { .. });
            assert!(!late.iter().any(is_taken_back));
        } else {
            assert_eq!(tripped(&response.unwrap_err()), "no");
            assert!(!late.iter().any(is_of_answer), "{late:?}");
        }
        assert_eq!(calls.load(Ordering::SeqCst), usize::from(passes));
    }
}

/// One guardrail of each place with the same check.
fn everywhere<O>(check: impl Fn() -> O + Clone + Send + Sync + 'static) -> [Guardrail; 3]
where
    O: Future<Output = Result<Verdict>> + Send + 'static,
{
    let (before, beside, after) = (check.clone(), check.clone(), check);
    [
        Guardrail::before(move |_| before()),
        Guardrail::beside(move |_| beside()),
        Guardrail::after(move |_, _| after()),
    ]
}

#[tokio::test]
async fn another_attempt_inside_is_held_back_too_and_checked_once() {
    let broken = Error::new(ErrorKind::Overloaded, "busy");
    let model = ScriptedModel::new([
        Turn::from_text("broken off").failing_after(1, broken),
        Turn::from_text("whole"),
    ]);
    let checks = Arc::new(AtomicUsize::new(0));
    let guardrail = Guardrail::beside({
        let checks = checks.clone();
        move |_| {
            checks.fetch_add(1, Ordering::SeqCst);
            async { Verdict::Pass }
        }
    });
    let agent = Agent::builder(model)
        .model_layer(guardrail)
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();

    let (_, response) = read(agent.stream("?")).await;

    assert_eq!(response.unwrap().text(), "whole");
    assert_eq!(checks.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_check_may_be_another_agent() {
    let judge = Agent::builder(ScriptedModel::new([
        Turn::from_text("no"),
        Turn::from_text("yes"),
    ]))
    .instructions("May this be answered?")
    .build()
    .unwrap();
    let guardrail = Guardrail::beside(move |request: ModelRequest| {
        let verdict = judge.run(request.messages()[0].text());
        async move {
            Ok::<_, Error>(match verdict.await?.text().as_str() {
                "yes" => Verdict::Pass,
                other => Verdict::trip(other.to_owned()),
            })
        }
    });
    let stack = guardrail.layer(ScriptedModel::always(Turn::from_text("answer")));
    let request = ModelRequest::new([Message::user("?")]);

    let error = stack.clone().oneshot(request.clone()).await.unwrap_err();
    assert_eq!(tripped(&error), "no");
    assert_eq!(request.context().usage().total(), 0);
    assert_eq!(
        stack.oneshot(request).await.unwrap().message().text(),
        "answer"
    );
}

#[test]
fn it_says_how_it_is_set() {
    let guardrail = Guardrail::after(|_, _| pending::<Result<Verdict>>())
        .named("tone")
        .with_timeout(Duration::from_secs(1))
        .with_on_trip(OnTrip::Abort);

    assert_eq!(guardrail.name(), "tone");
    assert_eq!(guardrail.timeout(), Some(Duration::from_secs(1)));
    assert_eq!(guardrail.on_trip(), &OnTrip::Abort);
    let debug = format!("{guardrail:?}");
    assert!(
        debug.contains(r#"name: "tone", when: "after", timeout: Some(1s)"#),
        "{debug}"
    );
}
