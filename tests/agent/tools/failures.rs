//! How much of a tool's failure the model reads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::{before_tool, on_tool_error};
use tower_agent::message::{Arguments, ToolCall};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentBuilder, BoxError, Error, ErrorKind, Message, ModelResponse, Role, Tool,
    ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

/// The result of the last tool call that the model has read.
async fn told(agent: AgentBuilder, model: &ScriptedModel) -> String {
    agent.build().unwrap().run("?").await.unwrap();
    let requests = model.requests();
    let messages = requests.last().unwrap().messages();
    messages
        .iter()
        .flat_map(|message| message.tool_results())
        .map(|result| result.text())
        .collect()
}

fn asks(arguments: Value) -> ScriptedModel {
    ScriptedModel::new([Turn::tool("balance", arguments), Turn::from_text("Done.")])
}

fn balance() -> Tool {
    Tool::function("balance", "Asks the bank.", |account: u32| {
        Err::<(), BoxError>(format!("no column `balance` where id = {account}").into())
    })
}

#[tokio::test]
async fn an_internal_error_is_kept_from_the_model_by_one_switch_and_seen_by_callbacks() {
    let arguments = json!({ "value": 7 });
    let model = asks(arguments.clone());
    let open = told(Agent::builder(model.clone()).tool(balance()), &model).await;
    assert_eq!(open, "tool failed: no column `balance` where id = 7");

    let seen = Arc::new(Mutex::new(Vec::new()));
    let look = || {
        let seen = seen.clone();
        on_tool_error(move |_, error| seen.lock().unwrap().push(error.message().to_owned()))
    };
    let model = asks(arguments.clone());
    let agent = Agent::builder(model.clone())
        .tool(balance())
        .on_tool(look());
    let agent = agent.tool_failure_message("The bank is closed.");
    assert_eq!(told(agent, &model).await, "The bank is closed.");

    // A tool's own says more than the agent's.
    let model = asks(arguments);
    let tool = balance().failure_message("Ask again tomorrow.");
    let agent = Agent::builder(model.clone()).tool(tool).on_tool(look());
    let agent = agent.tool_failure_message("The bank is closed.");
    assert_eq!(told(agent, &model).await, "Ask again tomorrow.");
    assert_eq!(
        *seen.lock().unwrap(),
        ["no column `balance` where id = 7"; 2]
    );
}

#[tokio::test]
async fn a_model_that_is_kept_from_errors_reads_what_is_wrong_with_its_own_call() {
    let model = asks(json!({ "value": "seven" }));
    let agent = Agent::builder(model.clone())
        .tool(balance().failure_message("Ask again tomorrow."))
        .tool_failure_message("The bank is closed.");
    let text = told(agent, &model).await;
    assert!(
        text.contains("field `value`") && text.contains("expected u32"),
        "{text}"
    );

    let model = ScriptedModel::new([Turn::tool("balanse", json!({})), Turn::from_text("Done.")]);
    let agent = Agent::builder(model.clone()).tool(balance());
    let text = told(agent.tool_failure_message("The bank is closed."), &model).await;
    assert!(text.contains("`balanse` is not registered"), "{text}");
}

#[tokio::test]
async fn a_panic_and_a_layers_error_are_kept_from_the_model_as_well() {
    let panics = Tool::function("balance", "Asks the bank.", |_: u32| -> u32 {
        panic!("secret")
    });
    let fails = before_tool(|_| Err::<(), _>(Error::new(ErrorKind::Tool, "secret")));
    for (tool, callback) in [(panics, None), (balance(), Some(fails))] {
        let model = asks(json!({ "value": 7 }));
        let agent = Agent::builder(model.clone())
            .tool(tool)
            .tool_failure_message("Closed.");
        let agent = callback
            .into_iter()
            .fold(agent, |agent, callback| agent.on_tool(callback));
        assert_eq!(told(agent, &model).await, "Closed.");
    }
}

/// A tool that is a service is no laxer than a function: what its schema does not allow does not
/// reach it.
#[tokio::test]
async fn arguments_that_the_schema_does_not_allow_do_not_reach_a_service() {
    let declaration = || {
        ToolDeclaration::new("pay", "Pays.").with_parameters(json!({
            "type": "object",
            "properties": { "cents": { "type": "integer" } },
            "required": ["cents"],
        }))
    };
    for (arguments, is_called) in [
        (r#"{"cents": 5}"#, true),
        (r#"{"cents": 5"#, false),
        ("all of it", false),
        ("[5]", false),
        (r#"{"cents": "all"}"#, false),
        ("{}", false),
    ] {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let service = tower::service_fn(move |_: ToolRequest| {
            counted.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok::<_, BoxError>(ToolResponse::new("paid")))
        });
        let mut call = ToolCall::new("1", "pay", json!({}));
        call.arguments = Arguments::from_text(arguments);
        let turn = ModelResponse::new(Message::new(Role::Assistant, [call.into()]));
        let model = ScriptedModel::new([Turn::response(turn), Turn::from_text("Done.")]);
        let agent = Agent::builder(model.clone()).tool(Tool::service(declaration(), service));
        let told = told(agent, &model).await;
        assert_eq!(
            calls.load(Ordering::SeqCst),
            usize::from(is_called),
            "{arguments}"
        );
        if !is_called {
            assert!(told.starts_with("invalid arguments: "), "{told}");
            assert!(told.contains(r#""required":["cents"]"#), "{told}");
        }
    }
}

/// What a callback has made of the arguments is the program's word, also where it is no number.
#[tokio::test]
async fn arguments_of_a_callback_reach_a_service() {
    let declaration = ToolDeclaration::new("pay", "Pays.").with_arguments::<u32>();
    let service = tower::service_fn(|request: ToolRequest| {
        let cents = request.arguments()["value"].clone();
        std::future::ready(Ok::<_, BoxError>(ToolResponse::new(cents)))
    });
    let model = ScriptedModel::new([Turn::tool("pay", json!("five")), Turn::from_text("Done.")]);
    let agent = Agent::builder(model.clone())
        .tool(Tool::service(declaration, service))
        .on_tool(before_tool(|request| {
            assert_eq!(*request.arguments(), json!({ "value": "five" }));
            *request.arguments_mut() = json!({ "value": "all" });
        }));
    assert_eq!(told(agent, &model).await, "all");
}

/// Arguments without the object around them are the model's own as well.
#[tokio::test]
async fn bare_arguments_are_checked_for_a_service() {
    let declaration = ToolDeclaration::new("pay", "Pays.").with_arguments::<u32>();
    let service = tower::service_fn(|request: ToolRequest| {
        let cents = request.arguments()["value"].clone();
        std::future::ready(Ok::<_, BoxError>(ToolResponse::new(cents)))
    });
    let tool = Tool::service(declaration, service);
    for (arguments, is_taken) in [(json!(5), true), (json!("five"), false)] {
        let turns = [Turn::tool("pay", arguments), Turn::from_text("Done.")];
        let model = ScriptedModel::new(turns);
        let agent = Agent::builder(model.clone()).tool(tool.clone());
        let told = told(agent, &model).await;
        assert_eq!(told == "5", is_taken, "{told}");
    }
}
