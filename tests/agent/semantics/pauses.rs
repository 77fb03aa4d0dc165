//! Pauses, limits and late answers under each preset.

use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::{Bundle, after_agent, before_model, on_model_error};
use tower_agent::compat::Semantics;
use tower_agent::message::ToolResult;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, EndReason, Error,
    ErrorKind, Message, ModelResponse, Recovery, Resolution, Tool,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use test_support::trace::Trace;
use test_support::transcript::{self, left};

fn says(text: &str) -> ModelResponse {
    ModelResponse::new(Message::assistant(text))
}

fn pay(trace: &Trace) -> Tool {
    let trace = trace.clone();
    Tool::function("pay", "Pays.", move |_: Value| trace.push("paid"))
}

/// A cashier that pays once a person has approved.
fn cashier(trace: &Trace) -> AgentBuilder {
    let asks = Turn::from_text("I pay.").and_tool("pay", json!({}));
    Agent::builder(ScriptedModel::new([asks, Turn::from_text("Paid.")]))
        .name("cashier")
        .tool(pay(trace))
        .on_tool(Approval::of_tools(["pay"]))
}

fn approved(checkpoint: Checkpoint) -> AgentRequest {
    let yes = |id: &str| Resolution::resolved(id, json!({ "approved": true }));
    let yes: Vec<_> = checkpoint
        .head
        .interrupts
        .iter()
        .map(|pending| yes(&pending.id))
        .collect();
    AgentRequest::resume(checkpoint).with_resolutions(yes)
}

/// Through another process, and back.
fn kept(response: &AgentResponse) -> Checkpoint {
    let saved = serde_json::to_string(&response.checkpoint()).unwrap();
    serde_json::from_str(&saved).unwrap()
}

const PRESETS: [(fn() -> Semantics, bool); 5] = [
    (Semantics::default, false),
    (Semantics::potato, false),
    (Semantics::adk_python, true),
    (Semantics::adk_elixir, false),
    (Semantics::trpc, false),
];

#[tokio::test]
async fn after_agent_is_asked_at_a_pause_under_googles_adk_alone_and_again_when_it_is_done() {
    for (semantics, asked_at_pause) in PRESETS {
        let trace = Trace::default();
        let (inner, outer) = (trace.clone(), trace.clone());
        let note = move |response: &AgentResponse, trace: &Trace, name: &str| match response
            .end_reason()
        {
            EndReason::Interrupted(pending) => {
                trace.push(format!("{name} waits for {}", pending.len()))
            }
            end => trace.push(format!("{name} {end:?}")),
        };
        let member = cashier(&trace)
            .on_agent(after_agent(move |_, response| {
                note(response, &inner, "cashier")
            }))
            .build()
            .unwrap();
        let team = Agent::sequential("team")
            .semantics(semantics())
            .on_agent(after_agent(move |_, response| {
                note(response, &outer, "team")
            }))
            .agent(member)
            .build()
            .unwrap();

        let paused = team.run("?").await.unwrap();

        assert_eq!(paused.interrupts().len(), 1);
        let at_pause = if asked_at_pause {
            "cashier waits for 1 team waits for 1"
        } else {
            ""
        };
        assert_eq!(trace.take(), at_pause, "{:?}", semantics());

        let done = team.run(approved(kept(&paused))).await.unwrap();

        assert_eq!(done.text(), "Paid.");
        assert_eq!(trace.take(), "paid cashier Completed team Completed");
    }
}

#[tokio::test]
async fn after_agent_is_not_asked_where_the_invocation_was_ended() {
    let trace = Trace::default();
    let asked = trace.clone();
    let agent = Agent::builder(ScriptedModel::new([]))
        .semantics(Semantics::adk_python())
        .on_model(before_model(|_| {
            Err::<(), _>(tower_agent::Error::end_invocation())
        }))
        .on_agent(after_agent(move |_, _| asked.push("asked")))
        .build()
        .unwrap();

    assert_eq!(
        agent.run("?").await.unwrap().end_reason(),
        &EndReason::EndedByCallback
    );
    assert_eq!(trace.take(), "");
}

#[tokio::test]
async fn an_answer_of_after_agent_at_a_pause_leaves_the_call_that_waits() {
    let answers = |_: &AgentRequest, response: &AgentResponse| match response.interrupts() {
        [] => Action::Continue,
        _ => Action::Respond(AgentResponse::new([Message::assistant("Please wait.")])),
    };
    let edits = |_: &AgentRequest, response: &AgentResponse| match response.interrupts() {
        [] => Action::Continue,
        _ => Action::Respond(
            response
                .clone()
                .with_message(Message::assistant("Please wait.")),
        ),
    };
    let google = Semantics::adk_python;
    for streamed in [false, true] {
        let trace = Trace::default();
        let agents = [
            cashier(&trace)
                .semantics(google())
                .on_agent(after_agent(answers)),
            cashier(&trace)
                .semantics(google())
                .on_agent(after_agent(edits)),
            // A guard is asked under every preset.
            cashier(&trace).on_agent(after_agent(answers).guard()),
            cashier(&trace).on_agent(after_agent(edits).guard()),
            cashier(&trace)
                .semantics(Semantics::adk_elixir())
                .on_agent(after_agent(answers).guard()),
        ];
        for (index, agent) in agents.into_iter().enumerate() {
            let agent = agent.build().unwrap();
            let paused = if streamed {
                let mut run = agent.stream("?");
                let events: Vec<_> = run.by_ref().collect().await;
                let paused = run.response().await.unwrap();
                assert_eq!(left(&events), transcript::said(paused.new_messages()));
                paused
            } else {
                agent.run("?").await.unwrap()
            };

            let said: Vec<_> = paused.new_messages().map(Message::text).collect();
            assert_eq!(said, ["Please wait."], "agent {index}");
            let waits: Vec<_> = paused
                .new_messages()
                .flat_map(Message::tool_calls)
                .collect();
            assert_eq!(waits.len(), 1, "agent {index}");

            let done = agent.run(approved(kept(&paused))).await.unwrap();
            assert_eq!(
                (done.text().as_str(), trace.take().as_str()),
                ("Paid.", "paid")
            );
        }
    }
}

#[tokio::test]
async fn after_agent_that_fails_at_a_pause_fails_the_run_which_can_go_on_all_the_same() {
    for streamed in [false, true] {
        let trace = Trace::default();
        let fails = || {
            after_agent(|_, response: &AgentResponse| match response.interrupts() {
                [] => Ok(()),
                _ => Err(Error::new(ErrorKind::Other, "not to be seen")),
            })
        };
        let agents = [
            cashier(&trace)
                .semantics(Semantics::adk_python())
                .on_agent(fails()),
            cashier(&trace).on_agent(fails().guard()),
            cashier(&trace).global_callbacks(Bundle::new().on_agent(fails().guard())),
        ];
        for (index, agent) in agents.into_iter().enumerate() {
            let agent = agent.build().unwrap();
            let error = if streamed {
                agent.stream("?").response().await.unwrap_err()
            } else {
                agent.run("?").await.unwrap_err()
            };
            assert_eq!(error.message(), "not to be seen", "agent {index}");

            let checkpoint = error.checkpoint().unwrap().clone();
            assert_eq!(checkpoint.head.interrupts.len(), 1, "agent {index}");
            let done = agent.run(approved(checkpoint)).await.unwrap();
            assert_eq!(
                (done.text().as_str(), trace.take().as_str()),
                ("Paid.", "paid")
            );
        }
    }
}

#[tokio::test]
async fn a_layer_that_fails_a_paused_agent_leaves_one_question() {
    let trace = Trace::default();
    let fails = tower::layer::layer_fn(|seam: tower_agent::callback::LayerInner<AgentRequest>| {
        seam.and_then(async |_| Err::<AgentResponse, _>(Error::new(ErrorKind::Other, "down")))
    });
    let agent = cashier(&trace)
        .on_agent(after_agent(|_, _| ()))
        .agent_layer(fails)
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();

    assert_eq!(paused.interrupts().len(), 1);
    let call = paused
        .new_messages()
        .flat_map(Message::tool_calls)
        .next()
        .unwrap();
    assert_eq!(
        paused.interrupts()[0].tool_call_id.as_deref(),
        Some(&*call.id)
    );
}

/// An agent with a limit of one model call, whose model would call for another one.
fn limited(semantics: Semantics, trace: &Trace) -> AgentBuilder {
    let model = ScriptedModel::new([Turn::tool("pay", json!({}))]);
    Agent::builder(model)
        .tool(pay(trace))
        .max_iterations(1)
        .semantics(semantics)
}

#[tokio::test]
async fn before_model_is_asked_about_the_call_that_the_limit_refuses_under_googles_adk_alone() {
    for (semantics, asked) in PRESETS {
        let trace = Trace::default();
        let (before, on_error) = (trace.clone(), trace.clone());
        let agent = limited(semantics(), &trace)
            .on_model(before_model(move |_| before.push("before")))
            .on_model(on_model_error(move |_, _| {
                on_error.push("error");
                Recovery::Fallback(says("recovered"))
            }))
            .build()
            .unwrap();

        let error = agent.run("?").await.unwrap_err();

        assert_eq!(error.kind(), ErrorKind::MaxIterations);
        assert_eq!(error.message(), "no final answer after 1 model call");
        let told = if asked {
            "before paid before"
        } else {
            "before paid"
        };
        assert_eq!(trace.take(), told, "{:?}", semantics());
    }
}

#[tokio::test]
async fn an_answer_before_the_call_that_the_limit_refuses_counts_unless_it_calls_tools() {
    for calls_tools in [false, true] {
        let trace = Trace::default();
        let agent = limited(Semantics::adk_python(), &trace)
            .on_model(before_model(move |request| {
                match request.messages().len() {
                    1 => Action::Continue,
                    _ if calls_tools => {
                        let call = tower_agent::message::ToolCall::new("again", "pay", json!({}));
                        let message = Message::assistant("More.");
                        Action::Respond(ModelResponse::new(message.with_part(call.into())))
                    }
                    _ => Action::Respond(says("That is all.")),
                }
            }))
            .build()
            .unwrap();

        match agent.run("?").await {
            Ok(response) => assert!(!calls_tools && response.text() == "That is all."),
            Err(error) => assert!(calls_tools && error.kind() == ErrorKind::MaxIterations),
        }
        assert_eq!(trace.take(), "paid");
    }
}

/// A tool that takes long answers that it has begun; the run goes on, and what it came to is told
/// in a later one.
#[tokio::test]
async fn a_later_answer_to_a_call_that_was_answered_asks_the_model_once_more() {
    for (semantics, _) in PRESETS {
        let model = ScriptedModel::new([
            Turn::tool("report", json!({})),
            Turn::from_text("It is being written."),
            Turn::from_text("It is done."),
            Turn::from_text("It is really done."),
        ]);
        let agent = Agent::builder(model.clone())
            .semantics(semantics())
            .tool(Tool::function(
                "report",
                "Reports.",
                |_: Value| json!({ "status": "pending" }),
            ))
            .build()
            .unwrap();
        let begun = agent.run("?").await.unwrap();
        let call = begun
            .new_messages()
            .flat_map(Message::tool_calls)
            .next()
            .unwrap()
            .clone();
        let mut messages = begun.messages().clone();

        for answer in ["It is done.", "It is really done."] {
            let late = ToolResult::new(&call, [tower_agent::Part::from_text("finished")]);
            messages.push(Message::tool(late));
            let response = agent
                .run(AgentRequest::conversation(messages))
                .await
                .unwrap();
            assert_eq!(
                (response.text().as_str(), response.iterations()),
                (answer, 1)
            );
            messages = response.messages().clone();
        }
        model.assert_done();
    }
}
