//! Tools in whose place a model answers.

use serde_json::json;
use tower_agent::{Agent, Error, ErrorKind, Usage};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::emulate::Emulate;
use tower_agent_test::{ScriptedModel, Turn};

use crate::guards::results;
use test_support::log::Log;

#[tokio::test]
async fn a_model_answers_in_place_of_the_tools_it_is_for() {
    let log = Log::default();
    let actor = ScriptedModel::new([Turn::from_text("4 degrees").usage(Usage::new(3, 2))]);
    let model = ScriptedModel::new([
        Turn::tool("weather", json!("Oslo"))
            .and_tool("look", json!(1))
            .and_tool("none", json!(2)),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model)
        .tools([log.tool("weather"), log.tool("look")])
        .on_tool(Emulate::new(actor.clone()).only(["weather"]))
        .build()
        .unwrap();
    let done = agent.run("?").await.unwrap();
    assert_eq!(log.take(), ["look 1"]);
    assert_eq!(results(&done)[..2], ["4 degrees", "look done"]);
    // What it has used is part of the run's.
    assert_eq!(done.usage().total(), 5);
    let [asked] = &actor.requests()[..] else {
        panic!("asked once")
    };
    let question = asked
        .messages()
        .iter()
        .map(|message| message.text())
        .collect::<String>();
    assert!(
        question.contains("Tool: weather") && question.contains("Oslo"),
        "{question}"
    );
    assert_eq!(asked.tools().len(), 0);
}

#[tokio::test]
async fn a_guard_before_it_is_asked_and_a_model_that_fails_is_the_calls_error() {
    let call = || ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::from_text("done")]);
    let log = Log::default();
    let actor = ScriptedModel::new([]);
    let agent = Agent::builder(call())
        .tool(log.tool("wipe"))
        .on_tool(Approval::of_tools(["wipe"]))
        .on_tool(Emulate::new(actor.clone()))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().interrupts().len(), 1);
    assert!(actor.requests().is_empty());

    let actor = ScriptedModel::new([Turn::error(Error::new(ErrorKind::Overloaded, "busy"))]);
    let agent = Agent::builder(call())
        .tool(log.tool("wipe"))
        .on_tool(Emulate::new(actor))
        .build()
        .unwrap();
    let done = agent.run("?").await.unwrap();
    assert!(results(&done)[0].contains("busy"), "{:?}", results(&done));
    assert!(log.take().is_empty());
}
