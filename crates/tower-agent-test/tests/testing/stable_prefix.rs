//! The check of a prompt's prefix finds what would miss the provider's cache.

use serde_json::{Value, json};
use tower::Layer;
use tower_agent::callback::before_model;
use tower_agent::model::ToolChoice;
use tower_agent::stream::PromptPart;
use tower_agent::{Agent, Error, ErrorKind, Message, ModelRequest, Request, Tool};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{PrefixFault, ScriptedModel, StablePrefixLayer, Turn};

fn look(name: &'static str) -> Tool {
    Tool::function(name, "Looks.", |_: Value| "seen")
}

fn looks_twice() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("look", json!({})),
        Turn::tool("look", json!({})),
        Turn::from_text("done"),
    ])
}

async fn faults(change: impl Fn(&mut ModelRequest) + Send + Sync + 'static) -> Vec<PrefixFault> {
    let prefix = StablePrefixLayer::new();
    let agent = Agent::builder(prefix.layer(looks_twice()))
        .instructions("Look closely.")
        .tools([look("look"), look("peek")])
        .on_model(before_model(change))
        .build()
        .unwrap();
    agent.run("Look!").await.unwrap();
    prefix.faults()
}

fn is_second(request: &ModelRequest) -> bool {
    request.context().iteration() == 1
}

#[tokio::test]
async fn a_run_that_only_appends_has_no_faults() {
    assert_eq!(faults(|_| {}).await, []);
    let warm = |request: &mut ModelRequest| {
        let iteration = f64::from(request.context().iteration());
        request.settings_mut().temperature = Some(iteration / 4.0);
        request
            .messages_mut()
            .get_mut(0)
            .unwrap()
            .provider_mut()
            .set("x", json!({ "y": 1 }));
    };
    assert_eq!(faults(warm).await, []);
}

#[tokio::test]
async fn each_part_that_changes_is_named() {
    let changed = async |change: fn(&mut ModelRequest)| {
        let faults = faults(move |request| {
            if is_second(request) {
                change(request);
            }
        });
        let faults = faults.await;
        // A change there and back is two faults.
        assert_eq!(
            faults
                .iter()
                .map(|fault| fault.iteration)
                .collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(faults[0].agent, "agent");
        faults[0].changed.clone()
    };
    let part = changed(|request| request.add_instructions("Hurry.")).await;
    assert_eq!(part, PromptPart::Instructions);
    let part = changed(|request| request.tools_mut().swap(0, 1)).await;
    assert_eq!(part, PromptPart::Tool("look".into()));
    let part = changed(|request| drop(request.tools_mut().pop())).await;
    assert_eq!(part, PromptPart::Tool("peek".into()));
    let part = changed(|request| request.settings_mut().tool_choice = Some(ToolChoice::None)).await;
    assert_eq!(part, PromptPart::Setting("tool_choice"));
    let part = changed(|request| {
        *request.messages_mut().get_mut(0).unwrap() = Message::user("Look! (It is noon.)");
    })
    .await;
    assert_eq!(part, PromptPart::Message(0));
}

#[tokio::test]
async fn a_message_that_is_missing_is_named() {
    let faults = faults(|request| {
        if request.context().iteration() == 2 {
            let last = request.messages().len() - 3;
            request.messages_mut().truncate(last);
        }
    });
    let faults = faults.await;
    assert_eq!(faults.len(), 1);
    assert_eq!(
        faults[0].to_string(),
        "agent `agent`, model call 2: the message 2 changed"
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_and_another_run_are_no_faults() {
    let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    let model = ScriptedModel::new([
        busy(),
        Turn::tool("look", json!({})),
        busy(),
        Turn::from_text("done"),
        Turn::from_text("again"),
    ]);
    let prefix = StablePrefixLayer::new();
    let agent = Agent::builder(prefix.layer(model.clone()))
        .tool(look("look"))
        .model_layer(CallRetryLayer::new())
        .build()
        .unwrap();
    agent.run("Look!").await.unwrap();
    agent.run("Something else.").await.unwrap();
    model.assert_done();
    assert_eq!(prefix.faults(), []);
}

#[tokio::test]
async fn two_calls_of_one_sub_agent_are_not_compared() {
    let prefix = StablePrefixLayer::new();
    let worker = Agent::builder(prefix.layer(ScriptedModel::always(Turn::from_text("ok"))))
        .name("worker")
        .build()
        .unwrap();
    let ask = |text: &str| json!({ "request": text });
    let model = ScriptedModel::new([
        Turn::tool("worker", ask("one")).and_tool("worker", ask("two")),
        Turn::tool("worker", ask("three")),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(prefix.layer(model))
        .tool(worker.into_tool("Works."))
        .build()
        .unwrap();
    assert_eq!(agent.run("Work!").await.unwrap().text(), "done");
    assert_eq!(prefix.faults(), []);
}
