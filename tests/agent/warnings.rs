//! A warning names its run, whatever part of it warns.

use serde_json::json;
use tower_agent::callback::{before_tool, on_model_error};
use tower_agent::compat::Semantics;
use tower_agent::{
    Action, Agent, AgentRequest, Error, ErrorKind, ModelResponse, Recovery, Tool, ToolResponse,
    Usage,
};
use tower_agent_test::{ScriptedModel, Turn};
use tracing::instrument::WithSubscriber;

use test_support::traces::Traces;

fn busy() -> Error {
    Error::new(ErrorKind::Overloaded, "busy")
}

fn call() -> Turn {
    Turn::tool("pay", json!({}))
}

/// Returns what a run warned of.
async fn warnings(agent: &Agent, run_id: &str) -> Vec<String> {
    let traces = Traces::default();
    let request = AgentRequest::new("?").with_run_id(run_id);
    // However it ends.
    let ended = agent.run(request).with_subscriber(traces.clone()).await;
    drop(ended);
    traces.take()
}

#[tokio::test]
async fn each_warning_names_its_run() {
    let failing =
        Tool::function("pay", "", |()| Err::<String, _>(busy())).failure_message("not now");
    let huge = Turn::response(ModelResponse::from_text("A lot."));
    let huge = huge.usage(Usage::new(u64::MAX, 1));
    let script = [Turn::error(busy()), call(), huge];
    let looped = Agent::builder(ScriptedModel::new(script))
        .name("clerk")
        .tool(failing.clone())
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .build()
        .unwrap();

    let ignored = Agent::builder(ScriptedModel::new([call(), Turn::from_text("")]))
        .name("clerk")
        .semantics(Semantics::potato())
        .tool(Tool::function("pay", "", |()| "paid"))
        .on_tool(before_tool(|_| Action::Respond(ToolResponse::new("mine"))))
        .build()
        .unwrap();

    let member = |name, turn| {
        let agent = Agent::builder(ScriptedModel::new([turn]));
        agent.name(name).build().unwrap()
    };
    let team = Agent::parallel("clerk")
        .agent(member("one", Turn::error(busy())))
        .agent(member("two", Turn::from_text("Yes.")))
        .allow_failures()
        .build()
        .unwrap();

    let to = |name| Turn::tool("transfer_to_agent", json!({ "agent_name": name }));
    let desk = Agent::builder(ScriptedModel::always(to("loans")));
    let loans = Agent::builder(ScriptedModel::always(to("clerk")));
    let loans = loans
        .name("loans")
        .transfer_to_parent(true)
        .build()
        .unwrap();
    let circle = desk.name("clerk").max_iterations(3).sub_agent(loans);
    let circle = circle.build().unwrap();

    let table: [(&Agent, &[&str]); 4] = [
        (
            &looped,
            &[
                "retrying call",
                "tool failed; hiding the error",
                "a provider stated more tokens",
            ],
        ),
        (&ignored, &["ignored response", "ends without an answer"]),
        (&team, &["a member of a team failed"]),
        (&circle, &["a transfer is beyond the limit"]),
    ];
    for (number, (agent, expected)) in table.into_iter().enumerate() {
        let run_id = format!("run {number}");
        let told = warnings(agent, &run_id).await;

        assert_eq!(told.len(), expected.len(), "{run_id}: {told:?}");
        for (warning, expected) in told.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
            assert!(warning.contains(&format!("run_id={run_id:?}")), "{warning}");
            assert!(warning.contains("clerk"), "{warning}");
        }
    }
}
