//! A run that was approved of goes on where it waited.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::before_tool;
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentRequest, Error, Interrupt, Resolution, Tool, ToolResponse,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::log::Log;

/// A desk: a person approves, another one answers a question of the model's.
#[tokio::test]
async fn a_desk_where_people_approve_and_answer() {
    let model = ScriptedModel::new([
        Turn::tool("refund", json!({ "value": 100 })),
        Turn::tool("ask_user", json!({ "question": "By post?" })),
        Turn::from_text("Sent by post."),
    ]);
    let refunds = Arc::new(Mutex::new(Vec::new()));
    let refund = Tool::function("refund", "Pays back.", {
        let refunds = refunds.clone();
        move |euros: u32| refunds.lock().unwrap().push(euros)
    });
    let ask = Tool::function("ask_user", "Asks the user.", |_: Value| {
        Err::<(), _>(Error::interrupt(Interrupt::new("ask", "input_required")))
    });
    let agent = Agent::builder(model)
        .tools([refund, ask])
        .on_tool(Approval::of_tools(["refund"]))
        .build()
        .unwrap();

    let paused = agent.run("I want my money back.").await.unwrap();
    let yes = paused.interrupts().iter();
    let yes = yes.map(|interrupt| Resolution::resolved(&interrupt.id, json!({ "approved": true })));
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions(yes);
    let paused = agent.run(request).await.unwrap();
    let [open] = &paused.open_calls().cloned().collect::<Vec<_>>()[..] else {
        panic!("one")
    };
    assert_eq!(&*open.name, "ask_user");

    let request = AgentRequest::resume(paused.checkpoint())
        .with_answer(&open.id, "Yes")
        .unwrap();
    assert_eq!(agent.run(request).await.unwrap().text(), "Sent by post.");
    assert_eq!(*refunds.lock().unwrap(), [100]);
}

#[tokio::test]
async fn an_edited_call_passes_the_checks_behind_the_approval() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("pay", json!(10)), Turn::from_text("Too much.")]);
    let agent = Agent::builder(model)
        .tool(log.tool("pay"))
        .on_tool(Approval::of_tools(["pay"]).allow_edits())
        .on_tool(before_tool(|request| {
            if request.arguments().as_u64() > Some(100) {
                Action::Respond(ToolResponse::error("too much"))
            } else {
                Action::Continue
            }
        }))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    let answer = Resolution::resolved(&paused.interrupts()[0].id, Decision::Edit(json!(1_000_000)));
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);

    let response = agent.run(request).await.unwrap();

    assert_eq!(response.text(), "Too much.");
    assert!(log.all().is_empty(), "{log:?}");
}

#[tokio::test]
async fn a_resume_runs_nothing_again_that_had_finished() {
    let log = Log::default();
    let turn = Turn::tool("look", json!("dear")).and_tool("pay", json!(10));
    let model = ScriptedModel::new([turn, Turn::from_text("done")]);
    let agent = Agent::builder(model.clone())
        .tools([log.tool("look"), log.tool("pay")])
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([yes]);

    assert_eq!(agent.run(request).await.unwrap().text(), "done");

    assert_eq!(log.all(), [r#"look "dear""#, "pay 10"]);
    model.assert_done();
}

#[tokio::test]
async fn calls_that_are_made_one_at_a_time_wait_behind_a_question() {
    type Change = fn(AgentBuilder) -> AgentBuilder;
    let ways: [(&str, Change); 2] = [
        ("concurrency", |agent| agent.tool_concurrency(1)),
        ("preset", |agent| agent.semantics(Semantics::adk_elixir())),
    ];
    for (name, change) in ways {
        let log = Log::default();
        let turn = Turn::tool("look", json!(1))
            .and_tool("pay", json!(2))
            .and_tool("look", json!(3))
            .and_tool("pay", json!(4));
        let model = ScriptedModel::new([turn, Turn::from_text("done")]);
        let agent = Agent::builder(model.clone())
            .tools([log.tool("look"), log.tool("pay")])
            .on_tool(Approval::of_tools(["pay"]));
        let agent = change(agent).build().unwrap();

        let mut response = agent.run("?").await.unwrap();
        assert_eq!(log.all(), ["look 1"], "{name}");
        for done in [
            &["look 1", "pay 2", "look 3"][..],
            &["look 1", "pay 2", "look 3", "pay 4"],
        ] {
            let [open] = response.interrupts() else {
                panic!("{name}: one question at a time")
            };
            let yes = Resolution::resolved(&open.id, Decision::Approve);
            let request = AgentRequest::resume(response.checkpoint()).with_resolutions([yes]);
            response = agent.run(request).await.unwrap();
            assert_eq!(log.all(), done, "{name}");
        }
        assert_eq!(response.text(), "done", "{name}");
        model.assert_done();
    }
}
