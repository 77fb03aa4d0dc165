//! An agent as another's tool, and transfers to a sub-agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use test_support::team::{agent, saying, texts};
use test_support::trace::Trace;
use tower::timeout::TimeoutLayer;
use tower_agent::agent::BuildError;
use tower_agent::callback::{after_agent, after_tool, before_model, before_tool, on_tool_error};
use tower_agent::tool::InvalidTool;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, Checkpoint, Effect, EndReason, Error, ErrorKind,
    Interrupt, Message, Recovery, Request, Tool, ToolRequest, ToolResponse, Usage,
};
use tower_agent_test::{ProbeLayer, RecordLayer, ScriptedModel, Turn};

fn asks(agent: &str, request: &str) -> Turn {
    Turn::tool(agent, json!({ "request": request }))
}

/// An agent with one tool, which is another agent.
fn boss(model: &ScriptedModel, worker: Agent) -> AgentBuilder {
    Agent::builder(model.clone())
        .name("boss")
        .tool(worker.into_tool("Works."))
}

#[tokio::test]
async fn an_agent_answers_as_a_tool() {
    let inner = ScriptedModel::new([Turn::from_text("4").usage(Usage::new(5, 1))]);
    let trace = Trace::default();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let worker = Agent::builder(inner.clone())
        .name("worker")
        .on_agent(trace.named("worker"))
        .on_model(before_model({
            let calls = calls.clone();
            move |request| {
                let context = request.context();
                context.state().set("worked", true);
                let call = context.tool_call_id().map(str::to_owned);
                calls
                    .lock()
                    .unwrap()
                    .push((context.path().to_owned(), call));
            }
        }))
        .build()
        .unwrap();
    let outer = ScriptedModel::new([
        asks("worker", "2 + 2?").usage(Usage::new(10, 2)),
        Turn::from_text("It is 4.").usage(Usage::new(20, 2)),
    ]);
    let record = RecordLayer::<ToolRequest>::new();
    let probe = ProbeLayer::new();
    let boss = boss(&outer, worker)
        .on_tool(trace.named("tool"))
        .tool_layer(record.clone())
        .tool_layer(probe.clone())
        .on_agent(trace.named("boss"))
        .build()
        .unwrap();

    let response = boss.run("What is 2 + 2?").await.unwrap();

    assert_eq!(response.text(), "It is 4.");
    assert_eq!(
        inner.requests()[0]
            .messages()
            .iter()
            .map(Message::text)
            .collect::<Vec<_>>(),
        ["2 + 2?"]
    );
    assert_eq!(
        *calls.lock().unwrap(),
        [("boss/worker".to_owned(), Some("call_1".to_owned()))]
    );
    assert_eq!(
        trace.take(),
        "boss> tool> worker> <worker worker=done <tool tool=done <boss boss=done"
    );
    assert_eq!(record.responses()[0].value(), "4");
    assert_eq!(probe.violations(), 0);
    // One state, one count; the worker's messages and model calls are its own.
    assert_eq!(response.state().get("worked"), Some(json!(true)));
    assert_eq!(
        (response.usage(), response.iterations()),
        (Usage::new(35, 5), 2)
    );
    assert_eq!(response.new_messages().len(), 3);

    let declaration = record.requests()[0].declaration().unwrap().clone();
    assert_eq!(
        (declaration.name(), declaration.description()),
        ("worker", "Works.")
    );
    assert_eq!(
        declaration.parameters()["properties"]["request"]["type"],
        "string"
    );
    assert_eq!(declaration.parameters()["required"], json!(["request"]));
}

#[tokio::test]
async fn its_failure_is_the_tools_and_keeps_its_kind() {
    let busy = Turn::error(Error::new(ErrorKind::RateLimited, "slow down"));
    let outer = ScriptedModel::new([asks("worker", "?"), Turn::from_text("done")]);
    let seen = Arc::new(Mutex::new(None));
    let boss = boss(&outer, agent("worker", &ScriptedModel::new([busy])))
        .on_tool(on_tool_error({
            let seen = seen.clone();
            move |_, error| {
                let path = error.call().map(|call| call.agent.clone());
                *seen.lock().unwrap() = Some((error.kind(), error.is_retryable(), path));
                Recovery::Propagate
            }
        }))
        .build()
        .unwrap();

    let response = boss.run("?").await.unwrap();

    assert_eq!(texts(&response), ["", "rate limited: slow down", "done"]);
    let seen = seen.lock().unwrap().take();
    assert_eq!(
        seen,
        Some((ErrorKind::RateLimited, true, Some("boss/worker".into())))
    );
}

#[tokio::test]
async fn an_abort_inside_ends_the_whole_run() {
    let worker = Agent::builder(ScriptedModel::new([]))
        .name("worker")
        .on_model(before_model(|_| Err::<(), _>(Error::abort("out of budget"))).named("budget"))
        .build()
        .unwrap();
    let outer = ScriptedModel::new([asks("worker", "?")]);
    let boss = boss(&outer, worker)
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new("fine"))
        }))
        .tool_layer(TimeoutLayer::new(Duration::from_secs(60)))
        .build()
        .unwrap();

    let error = boss.run("?").await.unwrap_err();

    outer.assert_done();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "out of budget")
    );
    assert_eq!(&*error.call().unwrap().agent, "boss/worker");
    assert_eq!(error.raised_by().unwrap().callback, "budget");
}

#[tokio::test]
async fn an_interruption_inside_interrupts_the_caller_with_all_it_waits_for() {
    let waits = |request: &mut ToolRequest| {
        Err::<(), _>(Error::interrupt(Interrupt::new(
            request.id(),
            "confirmation",
        )))
    };
    let both = Turn::tool("wipe", json!("disk")).and_tool("wipe", json!("tape"));
    let worker = Agent::builder(ScriptedModel::new([both]))
        .name("worker")
        .tool(Tool::function("wipe", "", |what: Value| what))
        .on_tool(before_tool(waits))
        .build()
        .unwrap();
    let outer = ScriptedModel::new([asks("worker", "?").and_tool("add", json!(1))]);
    let boss = boss(&outer, worker)
        .tool(Tool::function("add", "", |n: i64| n + 1))
        .on_tool(on_tool_error(|_, _| {
            Recovery::Fallback(ToolResponse::new("fine"))
        }))
        .build()
        .unwrap();

    let response = boss.run("?").await.unwrap();

    outer.assert_done();
    let waits: Vec<_> = response
        .interrupts()
        .iter()
        .map(|pending| &*pending.name)
        .collect();
    assert_eq!(waits, ["call_1", "call_2"]);
    assert_eq!(
        texts(&response),
        ["", "2"],
        "the call beside it has its answer"
    );
}

#[tokio::test]
async fn an_escalation_in_a_tool_ends_the_team_around_its_caller() {
    let exit = Tool::function_with("exit", "", |_: Value, request: ToolRequest| {
        request.context().escalate();
    });
    let model = ScriptedModel::new([Turn::tool("exit", json!(null)), Turn::from_text("enough")]);
    let worker = Agent::builder(model)
        .name("worker")
        .tool(exit)
        .build()
        .unwrap();
    let outer = ScriptedModel::new([asks("worker", "?"), Turn::from_text("done")]);
    let never = ScriptedModel::new([]);
    let team = Agent::repeat("team", 9)
        .agents([boss(&outer, worker).build().unwrap(), agent("next", &never)])
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    never.assert_done();
    assert_eq!(
        (response.text(), response.end_reason()),
        ("done".to_owned(), &EndReason::StopCondition)
    );
}

fn transfer(to: &str) -> Turn {
    Turn::tool("transfer_to_agent", json!({ "agent_name": to }))
}

fn desk(model: &ScriptedModel, billing: &ScriptedModel) -> AgentBuilder {
    let billing = Agent::builder(billing.clone())
        .name("billing")
        .description("Knows every invoice.")
        .build()
        .unwrap();
    let support = agent("support", &ScriptedModel::new([]));
    Agent::builder(model.clone())
        .name("desk")
        .sub_agent(billing)
        .sub_agent(support)
}

#[tokio::test]
async fn a_transfer_hands_the_conversation_over() {
    let model = ScriptedModel::new([transfer("billing").usage(Usage::new(10, 1))]);
    let billing = ScriptedModel::new([Turn::from_text("It is paid.").usage(Usage::new(20, 2))]);
    let trace = Trace::default();
    let whole = Arc::new(Mutex::new(Vec::new()));
    let desk = desk(&model, &billing)
        .on_agent(trace.named("desk"))
        .on_agent(after_agent({
            let whole = whole.clone();
            move |_, response| *whole.lock().unwrap() = texts(response)
        }))
        .on_tool(trace.named("tool"))
        .build()
        .unwrap();

    let response = desk.run("My invoice?").await.unwrap();

    [&model, &billing]
        .into_iter()
        .for_each(ScriptedModel::assert_done);
    assert_eq!(response.text(), "It is paid.");
    let said = [
        "",
        "Transferred the conversation to `billing`.",
        "It is paid.",
    ];
    assert_eq!(texts(&response), said);
    assert_eq!(*whole.lock().unwrap(), said);
    assert_eq!(trace.take(), "desk> tool> <tool tool=done <desk desk=done");
    assert_eq!(
        (response.usage(), response.iterations()),
        (Usage::new(30, 3), 2)
    );
    let heard = &billing.requests()[0];
    assert_eq!(heard.messages().len(), 3);
    assert_eq!(heard.context().path(), "desk/billing");
    assert_eq!(
        heard.context().run_id(),
        model.requests()[0].context().run_id()
    );

    let offered = model.requests()[0].tools()[0].clone();
    assert_eq!(
        offered.parameters()["properties"]["agent_name"]["enum"],
        json!(["billing", "support"])
    );
    assert!(
        offered
            .description()
            .contains("- `billing`: Knows every invoice.\n- `support`")
    );
    assert_eq!(offered.effect(), Effect::Idempotent);
}

#[tokio::test]
async fn a_transfer_can_be_blocked() {
    let blocks: [fn(AgentBuilder) -> AgentBuilder; 4] = [
        |desk| {
            desk.on_tool(before_tool(|_| {
                Action::Respond(ToolResponse::error("not now"))
            }))
        },
        |desk| {
            desk.on_tool(before_tool(|_| {
                Action::Respond(ToolResponse::new("not now"))
            }))
        },
        |desk| {
            desk.on_tool(after_tool(|_, _| {
                Action::Respond(ToolResponse::new("not now"))
            }))
        },
        |desk| desk.on_tool(before_tool(|_| Err::<(), _>(Error::from("not now")))),
    ];
    for block in blocks {
        let model = ScriptedModel::new([transfer("billing"), Turn::from_text("I can help.")]);
        let never = ScriptedModel::new([]);
        let desk = block(desk(&model, &never)).build().unwrap();

        let response = desk.run("?").await.unwrap();

        [&model, &never]
            .into_iter()
            .for_each(ScriptedModel::assert_done);
        assert!(texts(&response)[1].ends_with("not now"));
        assert_eq!(response.text(), "I can help.");
    }
}

#[tokio::test]
async fn a_callback_may_choose_another_sub_agent_and_an_unknown_agent_is_rejected() {
    let model = ScriptedModel::new([transfer("nobody"), transfer("support")]);
    let billing = ScriptedModel::new([Turn::from_text("billing here")]);
    let desk = desk(&model, &billing)
        .on_tool(before_tool(|request| {
            if request.arguments()["agent_name"] == "support" {
                request.arguments_mut()["agent_name"] = json!("billing");
            }
        }))
        .build()
        .unwrap();

    let response = desk.run("?").await.unwrap();

    [&model, &billing]
        .into_iter()
        .for_each(ScriptedModel::assert_done);
    let refused = "invalid arguments: `agent_name` must be one of these: billing, support";
    assert_eq!(texts(&response)[1], refused);
    assert_eq!(response.text(), "billing here");
}

#[tokio::test]
async fn transfers_nest_and_end_with_the_last_agents_answer() {
    let [top, middle] = ["middle", "bottom"].map(|to| ScriptedModel::new([transfer(to)]));
    let bottom = saying("from below", 0);
    let agents = Agent::builder(middle.clone())
        .name("middle")
        .sub_agent(agent("bottom", &bottom))
        .build()
        .unwrap();
    let top = Agent::builder(top)
        .name("top")
        .sub_agent(agents)
        .build()
        .unwrap();
    let next = saying("next", 0);
    let team = Agent::sequential("team")
        .agents([top, agent("next", &next)])
        .build()
        .unwrap();

    let response = team.run("?").await.unwrap();

    assert_eq!(
        bottom.requests()[0].context().path(),
        "team/top/middle/bottom"
    );
    assert_eq!(texts(&response)[4..], ["from below", "next"]);
    assert_eq!(response.iterations(), 4);
}

#[tokio::test]
async fn the_last_of_several_transfers_counts_after_the_turn() {
    let trace = Trace::default();
    let both = transfer("support")
        .and_tool("transfer_to_agent", json!({ "agent_name": "billing" }))
        .and_tool("note", json!("x"));
    let model = ScriptedModel::new([both]);
    let billing = saying("billing here", 0);
    let desk = desk(&model, &billing)
        .tool(Tool::function("note", "", {
            let trace = trace.clone();
            move |what: String| trace.push(what)
        }))
        .build()
        .unwrap();

    let response = desk.run("?").await.unwrap();

    assert_eq!(response.text(), "billing here");
    assert_eq!(trace.take(), "x", "the other calls of the turn have run");
    assert_eq!(billing.requests()[0].messages().len(), 5);
}

#[tokio::test]
async fn a_sub_agents_failure_abort_and_interruption_are_its_parents() {
    let failing = |turn| ScriptedModel::new([turn]);
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    for error in [busy, Error::abort("enough")] {
        let model = failing(transfer("billing"));
        let desk = desk(&model, &failing(Turn::error(error.clone())))
            .build()
            .unwrap();
        let found = desk.run("?").await.unwrap_err();
        assert_eq!(
            (found.kind(), found.message()),
            (error.kind(), error.message())
        );
        assert_eq!(&*found.call().unwrap().agent, "desk/billing");
    }

    let granted = Arc::new(Mutex::new(false));
    let billing = ScriptedModel::new([
        Turn::tool("refund", json!(null)),
        Turn::from_text("refunded"),
    ]);
    let agent = Agent::builder(billing.clone())
        .name("billing")
        .tool(Tool::function("refund", "", |_: Value| "ok"))
        .on_tool(before_tool({
            let granted = granted.clone();
            move |_| {
                if *granted.lock().unwrap() {
                    Ok(())
                } else {
                    Err(Error::interrupt(Interrupt::new("refund", "confirmation")))
                }
            }
        }))
        .build()
        .unwrap();
    let model = ScriptedModel::new([transfer("billing")]);
    let after = Trace::default();
    let desk = Agent::builder(model.clone())
        .name("desk")
        .sub_agent(agent)
        .on_agent(after.named("desk"))
        .build()
        .unwrap();

    let stopped = desk.run("?").await.unwrap();
    assert_eq!(stopped.interrupts()[0].name, "refund");
    assert_eq!(after.take(), "desk> desk=done");

    *granted.lock().unwrap() = true;
    let saved = serde_json::to_string(&stopped.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    let response = desk.run(AgentRequest::resume(checkpoint)).await.unwrap();

    [&model, &billing]
        .into_iter()
        .for_each(ScriptedModel::assert_done);
    assert_eq!(texts(&response), ["ok", "refunded"]);
    assert_eq!(response.end_reason(), &EndReason::Completed);
}

#[tokio::test]
async fn an_open_call_of_a_tool_that_both_have_is_the_parents() {
    let note = |who: &'static str| Tool::function("note", "", move |_: Value| who);
    let never = ScriptedModel::new([]);
    let sub = Agent::builder(never.clone())
        .name("sub")
        .tool(note("sub"))
        .build()
        .unwrap();
    let model = ScriptedModel::new([Turn::tool("note", json!(null)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(note("parent"))
        .sub_agent(sub)
        .build()
        .unwrap();

    assert_eq!(
        texts(&agent.run("?").await.unwrap()),
        ["", "parent", "done"]
    );
    never.assert_done();
}

#[tokio::test]
async fn the_next_question_goes_to_the_parent_again() {
    let model = ScriptedModel::new([transfer("billing"), Turn::from_text("desk here")]);
    let desk = desk(&model, &saying("billing here", 0)).build().unwrap();

    let first = desk.run("?").await.unwrap();
    let request = AgentRequest::new("And now?").with_history(first.messages().clone());

    assert_eq!(desk.run(request).await.unwrap().text(), "desk here");
}

#[test]
fn names_do_not_collide() {
    let sub = || agent("billing", &ScriptedModel::new([]));
    let builder = || Agent::builder(ScriptedModel::new([])).sub_agent(sub());
    let taken = Tool::function("transfer_to_agent", "", |value: Value| value);
    assert!(matches!(
        builder().tool(taken.clone()).build(),
        Err(BuildError::Tool(InvalidTool::Duplicate(name))) if &*name == "transfer_to_agent"
    ));
    assert_eq!(
        builder().sub_agent(sub()).build().unwrap_err(),
        BuildError::DuplicateAgent("billing".into())
    );
    // Without sub-agents the name is free.
    assert!(
        Agent::builder(ScriptedModel::new([]))
            .tool(taken)
            .build()
            .is_ok()
    );
}

#[test]
fn explain_shows_the_agents_inside() {
    let unused = ScriptedModel::new([]);
    let worker = agent("worker", &unused);
    let text = boss(&unused, worker)
        .sub_agent(agent("billing", &unused))
        .build()
        .unwrap();
    assert_eq!(
        text.explain().to_string(),
        "\
agent `boss`
  loop of at most 25 model calls
    model call
      ScriptedModel
    tool calls, 8 at a time
      worker
        agent `worker`
          loop of at most 25 model calls
            model call
              ScriptedModel
            tool calls, 8 at a time
      transfer_to_agent
    may transfer to
      agent `billing`
        loop of at most 25 model calls
          model call
            ScriptedModel
          tool calls, 8 at a time
"
    );
}
