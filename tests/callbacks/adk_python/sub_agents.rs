//! Agents that work for another: by transfer, and as tools.

use serde_json::json;
use tower_agent::callback::{after_agent, after_tool, before_agent, before_tool, on_tool_error};
use tower_agent::{Action, Agent, AgentBuilder, Error, ErrorKind, Recovery, Request, ToolResponse};
use tower_agent_test::{ScriptedModel, Turn};

use super::{adk, agent_says, said, told};
use test_support::log::Log;

fn transfer(to: &str) -> Turn {
    Turn::tool("transfer_to_agent", json!({ "agent_name": to }))
}

/// A desk that may transfer to an agent that knows every invoice.
fn desk(model: &ScriptedModel, billing: &ScriptedModel, log: &Log) -> AgentBuilder {
    let [desk, clerk] = ["desk", "billing"].map(|name| log.line(name));
    let billing = adk(billing)
        .name("billing")
        .on_agent(after_agent(move |_, _| clerk()));
    adk(model)
        .name("desk")
        .sub_agent(billing.build().unwrap())
        .on_agent(after_agent(move |_, _| desk()))
}

#[tokio::test]
async fn a_transfer_hands_over_and_both_agents_are_asked_after() {
    let log = Log::default();
    let model = ScriptedModel::new([transfer("billing")]);
    let billing = ["It is paid.", "You are welcome."].map(Turn::from_text);
    let billing = ScriptedModel::new(billing);
    let desk = desk(&model, &billing, &log).build().unwrap();

    let first = desk.run("My invoice?").await.unwrap();

    assert_eq!(first.text(), "It is paid.");
    assert_eq!(billing.requests()[0].messages()[0].text(), "My invoice?");
    assert_eq!(log.take(), ["billing", "desk"]);

    // The next question is for the agent that has the conversation, inside the called one.
    let next = tower_agent::AgentRequest::new("Thanks.").with_history(first.messages().clone());
    assert_eq!(desk.run(next).await.unwrap().text(), "You are welcome.");
    assert_eq!(log.take(), ["billing", "desk"]);
    [&model, &billing]
        .into_iter()
        .for_each(ScriptedModel::assert_done);
}

#[tokio::test]
async fn a_transfer_is_a_tool_call_that_callbacks_see_block_and_redirect() {
    let log = Log::default();
    let model = ScriptedModel::new([transfer("billing"), Turn::from_text("I can help.")]);
    let never = ScriptedModel::new([]);
    let blocked = desk(&model, &never, &Log::default())
        .on_tool(before_tool({
            let log = log.clone();
            move |request| {
                log.note(request.name());
                Action::Respond(ToolResponse::error("billing is closed"))
            }
        }))
        .build()
        .unwrap();
    let response = blocked.run("?").await.unwrap();
    assert_eq!(
        (response.text(), told(&response)),
        ("I can help.".into(), vec!["billing is closed".into()])
    );
    assert_eq!(log.take(), ["transfer_to_agent"]);
    [&model, &never]
        .into_iter()
        .for_each(ScriptedModel::assert_done);

    let model = ScriptedModel::new([transfer("accounts")]);
    let billing = ScriptedModel::new([Turn::from_text("It is paid.")]);
    let redirected = desk(&model, &billing, &Log::default())
        .on_tool(before_tool(|request| {
            request.arguments_mut()["agent_name"] = json!("billing")
        }))
        .build()
        .unwrap();
    assert_eq!(redirected.run("?").await.unwrap().text(), "It is paid.");
}

/// A boss that asks its helper once.
fn boss(helper: Agent) -> AgentBuilder {
    let model = ScriptedModel::new([
        Turn::tool("helper", json!({ "request": "Help me." })),
        Turn::from_text("done"),
    ]);
    adk(&model).name("boss").tool(helper.into_tool("Helps."))
}

fn helper(turn: Turn) -> AgentBuilder {
    adk(&ScriptedModel::new([turn])).name("helper")
}

#[tokio::test]
async fn an_agent_as_a_tool_runs_its_own_callbacks_in_the_callers_state() {
    let log = Log::default();
    let helper = helper(Turn::from_text("helped"))
        .on_agent(before_agent({
            let log = log.clone();
            move |request| {
                let said = request.messages().iter().map(|message| message.text());
                log.note(format!(
                    "{} hears {:?}",
                    request.context().path(),
                    said.collect::<Vec<_>>()
                ));
                request.context().state().set("helped", true);
            }
        }))
        .on_agent(after_agent(|_, _| Action::Respond(agent_says("concluded"))))
        .build()
        .unwrap();
    let boss = boss(helper)
        .on_tool(before_tool({
            let log = log.clone();
            move |request| log.note(format!("before {}", request.name()))
        }))
        .on_tool(after_tool({
            let log = log.clone();
            move |request, response| {
                let state = request.context().state().get("helped");
                log.note(format!("after {} {state:?}", response.value()));
            }
        }))
        .build()
        .unwrap();

    let response = boss.run("?").await.unwrap();

    assert_eq!(
        log.take(),
        [
            "before helper",
            r#"boss/helper hears ["Help me."]"#,
            r#"after "concluded" Some(Bool(true))"#,
        ]
    );
    assert_eq!(
        (told(&response), said(&response)),
        (vec!["concluded".into()], vec!["done".into()])
    );
    assert_eq!(response.state().delta().set["helped"], true);
}

#[tokio::test]
async fn the_failure_of_an_agent_that_is_a_tool_is_the_callers_tool_error() {
    let quota = || Turn::error(Error::new(ErrorKind::RateLimited, "quota"));
    let error = boss(helper(quota()).build().unwrap())
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::RateLimited, "quota")
    );

    let recovers = boss(helper(quota()).build().unwrap())
        .on_tool(on_tool_error(|_, error| {
            Recovery::Fallback(ToolResponse::new(format!("no help: {}", error.message())))
        }))
        .build()
        .unwrap();
    assert_eq!(told(&recovers.run("?").await.unwrap()), ["no help: quota"]);
}
