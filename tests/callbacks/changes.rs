//! Changes that a callback makes: who sees them, streamed or not.

use serde_json::json;
use tower::limit::ConcurrencyLimitLayer;
use tower_agent::callback::{Outcome, after_model, after_tool, before_model, before_tool};
use tower_agent::{
    Action, Agent, Callback, Effect, Error, ErrorKind, Message, ModelRequest, ModelResponse,
    Result, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::log::Log;
use test_support::runs::read;

#[tokio::test]
async fn a_callback_around_a_tool_sees_its_declaration_and_can_change_its_answer() {
    let log = Log::default();
    let seen = log.clone();
    let model = ScriptedModel::new([Turn::tool("look", json!(1)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(log.tool("look").effect(Effect::Pure))
        .on_tool(after_tool(
            move |request: &ToolRequest, _: &ToolResponse| {
                seen.note(format!("{:?}", request.declaration().unwrap().effect()));
                Action::Respond(ToolResponse::new("changed"))
            },
        ))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    let results: Vec<_> = response
        .new_messages()
        .flat_map(Message::tool_results)
        .collect();
    assert_eq!(results[0].text(), "changed");
    assert_eq!(log.all()[1], "Pure");
}

#[tokio::test]
async fn a_callback_that_crashes_before_a_tool_keeps_it_from_running() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("wipe", json!("disk")),
        Turn::from_text("Not done."),
    ]);
    let agent = Agent::builder(model)
        .tool(log.tool("wipe"))
        .on_tool(before_tool(|_| -> () { panic!("on purpose") }))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap().text(), "Not done.");
    assert!(log.all().is_empty());
}

#[tokio::test]
async fn callbacks_that_rewrite_one_request_each_see_what_the_one_before_has_made() {
    let log = Log::default();
    let append = |what: &'static str| {
        before_tool(move |request: &mut ToolRequest| {
            let so_far = request.arguments().as_str().unwrap_or_default().to_owned();
            *request.arguments_mut() = json!(so_far + what);
        })
    };
    let agent = Agent::builder(ScriptedModel::new([
        Turn::tool("look", json!("a")),
        Turn::from_text("done"),
    ]))
    .tool(log.tool("look"))
    .on_tool(append("b"))
    .on_tool(append("c"))
    .tool_layer(ConcurrencyLimitLayer::new(1))
    .on_tool(append("d"))
    .build()
    .unwrap();

    agent.run("?").await.unwrap();

    // The tool gets what they made, and not what the model gave.
    assert_eq!(log.all(), [r#"look "abcd""#]);
}

#[tokio::test]
async fn instructions_of_a_callback_are_in_every_model_call_of_the_loop() {
    let model = ScriptedModel::new([
        Turn::tool("look", json!(1)),
        Turn::tool("look", json!(2)),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(Log::default().tool("look"))
        .on_model(before_model(|request| {
            request.add_instructions("Be brief.")
        }))
        .build()
        .unwrap();

    read(agent.stream("?")).await.unwrap();

    let told: Vec<_> = model
        .requests()
        .iter()
        .map(|request| request.instructions().map(String::from))
        .collect();
    assert_eq!(told, vec![Some("Be brief.".to_owned()); 3]);
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
        if streamed {
            drop(read(agent.stream("?")).await.unwrap())
        } else {
            drop(agent.run("?").await.unwrap())
        }
        runs.push(log.all());
    }
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0].len(), 6);
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
        Turn::from_text("half").failing_after(1, Error::new(ErrorKind::Overloaded, "busy"))
    ]))
    .on_model(Memory(log.clone()))
    .build()
    .unwrap();

    read(agent.stream("?")).await.unwrap_err();

    assert_eq!(log.all(), ["busy"]);
}
