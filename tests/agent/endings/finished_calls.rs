//! Calls that had finished when a run paused or failed are not made again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::{ToolFailure, after_tool};
use tower_agent::compat::Semantics;
use tower_agent::model::BoxModel;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Error, ErrorKind, Interrupt, Message,
    ModelRequest, Request, Resolution, Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

/// A turn of which one call waits for an answer, one has an effect, and one fails the run.
#[derive(Clone, Default)]
struct Turnover {
    paid: Arc<AtomicU32>,
}

impl Turnover {
    fn agent(&self, change: impl FnOnce(AgentBuilder) -> AgentBuilder) -> Agent {
        let ask = Tool::function_with("ask", "Asks.", async |_: Value, call: ToolRequest| {
            // More than the queue holds, without a reader meanwhile.
            for piece in 0..40 {
                call.context().emit("piece", piece).now_or_never();
            }
            call.ask(Interrupt::new("may I?", "confirmation"))
                .map(|_| "yes")
        });
        let paid = self.paid.clone();
        let pay = Tool::function("pay", "Pays.", move |_: Value| {
            paid.fetch_add(1, SeqCst);
            "paid"
        });
        let failed = AtomicU32::new(0);
        let fail = Tool::function("fail", "Fails once.", move |_: Value| {
            match failed.fetch_add(1, SeqCst) {
                0 => Err(Error::new(ErrorKind::Tool, "out of order")),
                _ => Ok("worked"),
            }
        });
        let mut semantics = Semantics::default();
        semantics.run.tool_failure = ToolFailure::FailRun;
        let turn = Turn::tool("ask", json!({}))
            .and_tool("pay", json!({}))
            .and_tool("fail", json!({}));
        let model = ScriptedModel::new([turn, Turn::from_text("done")]);
        change(
            Agent::builder(model)
                .tools([ask, pay, fail])
                .semantics(semantics),
        )
        .build()
        .unwrap()
    }
}

async fn run(
    agent: &Agent,
    request: AgentRequest,
    is_streamed: bool,
) -> (AgentResponse, Vec<Event>) {
    if !is_streamed {
        return (agent.run(request).await.unwrap(), Vec::new());
    }
    let mut run = agent.stream(request);
    let mut events = Vec::new();
    while let Some(event) = run.next().await {
        events.push(event);
    }
    (run.response().await.unwrap(), events)
}

/// The results in a transcript, and those that were streamed, by their calls.
fn answers<'a>(messages: impl Iterator<Item = &'a Message>) -> Vec<(String, String)> {
    let results = messages.flat_map(Message::tool_results);
    results
        .map(|result| (result.call_id.to_string(), result.text()))
        .collect()
}

fn told(events: &[Event]) -> Vec<(String, String)> {
    let results = events.iter().filter_map(|event| match &event.kind {
        EventKind::ToolResult(result) => {
            let texts = result.parts.iter().filter_map(tower_agent::Part::as_text);
            Some((result.call_id.to_string(), texts.collect()))
        }
        _ => None,
    });
    results.collect()
}

#[tokio::test]
async fn a_tool_that_has_a_result_is_not_run_again_whatever_its_siblings_do() {
    type Change = fn(AgentBuilder) -> AgentBuilder;
    let changes: [(&str, Change); 4] = [
        ("nothing around", |agent| agent),
        ("a callback", |agent| agent.on_tool(after_tool(|_, _| {}))),
        ("several callbacks", |agent| {
            (0..30).fold(agent, |agent, _| agent.on_tool(after_tool(|_, _| {})))
        }),
        ("messages of its own", |agent| {
            agent.tool_result_messages(|answer: tower_agent::agent::ToolAnswer| {
                Some(vec![answer.default, Message::user("and a word")])
            })
        }),
    ];
    for (name, change) in changes {
        for is_streamed in [false, true] {
            let turnover = Turnover::default();
            let agent = turnover.agent(change);
            let (paused, events) = run(&agent, "Go.".into(), is_streamed).await;
            assert_eq!(paused.interrupts().len(), 1, "{name}, {is_streamed}");
            let kept = answers(paused.new_messages());
            assert!(
                kept.contains(&("call_2".into(), "paid".into())),
                "{name}: {kept:?}"
            );
            if is_streamed {
                assert_eq!(told(&events), kept, "{name}: what was told stands");
            }

            let checkpoint = paused.checkpoint();
            let yes = Resolution::resolved(&paused.interrupts()[0].id, json!(true));
            let request = AgentRequest::resume(checkpoint).with_resolutions([yes]);
            let (done, _) = run(&agent, request, is_streamed).await;
            assert_eq!(done.text(), "done", "{name}, {is_streamed}");
            assert_eq!(
                turnover.paid.load(SeqCst),
                1,
                "{name}, {is_streamed}: paid once"
            );
        }
    }
}

/// It may have had its effect already: made again, it might have two.
#[tokio::test]
async fn a_tool_that_is_stopped_while_it_runs_is_not_run_again_unless_that_does_no_harm() {
    use tower_agent::Effect;
    for (effect, runs) in [
        (Effect::Mutating, 1),
        (Effect::Idempotent, 2),
        (Effect::Pure, 2),
    ] {
        for is_streamed in [false, true] {
            let turnover = Turnover::default();
            let begun = turnover.paid.clone();
            let slow = Tool::function_with("slow", "Is slow once.", move |_: Value, _| {
                let is_first = begun.fetch_add(1, SeqCst) == 0;
                async move {
                    if is_first {
                        std::future::pending::<()>().await;
                    }
                    "late"
                }
            });
            let ask = Tool::function_with("ask", "Asks.", async |_: Value, call: ToolRequest| {
                call.ask(Interrupt::new("may I?", "confirmation"))
                    .map(|_| "yes")
            });
            let calls = AtomicU32::new(0);
            let fail = Tool::function("fail", "Fails once.", move |_: Value| {
                let is_first = calls.fetch_add(1, SeqCst) == 0;
                if is_first {
                    Err(Error::new(ErrorKind::Tool, "no"))
                } else {
                    Ok("worked")
                }
            });
            let turn = Turn::tool("ask", json!({})).and_tool("slow", json!({}));
            let model =
                ScriptedModel::new([turn.and_tool("fail", json!({})), Turn::from_text("done")]);
            let mut semantics = Semantics::default();
            semantics.run.tool_failure = ToolFailure::FailRun;
            let agent = Agent::builder(model).tools([ask, slow.effect(effect), fail]);
            let agent = agent.semantics(semantics).build().unwrap();

            let (paused, events) = run(&agent, "Go.".into(), is_streamed).await;
            let mut kept = answers(paused.new_messages());
            // The call that failed has its failure for an answer.
            assert_eq!(
                kept.len(),
                1 + usize::from(runs == 1),
                "{effect:?}: {kept:?}"
            );
            if is_streamed {
                let mut told = told(&events);
                told.sort();
                kept.sort();
                assert_eq!(told, kept, "{effect:?}");
            }
            let request =
                AgentRequest::resume(paused.checkpoint()).with_resolutions([Resolution::resolved(
                    &paused.interrupts()[0].id,
                    json!(true),
                )]);
            let (done, _) = run(&agent, request, is_streamed).await;
            assert_eq!(done.text(), "done", "{effect:?}");
            assert_eq!(
                turnover.paid.load(SeqCst),
                runs,
                "{effect:?}, {is_streamed}"
            );
        }
    }
}

/// A tool that pays, and whose own model call aborts the run, which the tool does not mind.
fn pays_and_aborts() -> Tool {
    Tool::function_with("pay", "Pays.", async |_: Value, call: ToolRequest| {
        let notes = ScriptedModel::new([Turn::error(Error::abort("out of budget"))]);
        let request = ModelRequest::default().with_context(call.context().clone());
        let note = BoxModel::within_runs(notes).oneshot(request).await;
        assert!(note.is_err());
        "paid"
    })
}

#[tokio::test]
async fn a_call_that_has_paid_before_an_abort_is_not_recorded_as_one_that_failed() {
    let unknown = "outcome is unknown";
    for (callbacks, result) in [(0, "paid"), (1, unknown), (2, unknown)] {
        let turn = Turn::tool("pay", json!({}));
        let mut agent = Agent::builder(ScriptedModel::new([turn])).tool(pays_and_aborts());
        for _ in 0..callbacks {
            agent = agent.on_tool(after_tool(|_, _| {}));
        }
        let error = agent.build().unwrap().run("Pay.").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Aborted);

        let checkpoint = error.checkpoint().unwrap();
        let results = checkpoint.messages.iter().flat_map(Message::tool_results);
        let texts: Vec<_> = results.map(|result| result.text()).collect();
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(texts[0].ends_with(result), "{callbacks}: {texts:?}");
    }
}
