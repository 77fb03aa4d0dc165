//! Messages that a run keeps when it ends early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use tower::ServiceExt;
use tower::util::MapErrLayer;
use tower_agent::callback::{before_agent, before_model, before_tool, wrap_agent};
use tower_agent::{
    Action, Agent, AgentRequest, AgentResponse, EndReason, Error, ErrorKind, Interrupt, Message,
    ModelRequest, ModelResponse, Request, Tool,
};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

fn endings() -> [Error; 2] {
    [
        Error::end_invocation(),
        Error::interrupt(Interrupt::new("wait", "input_required")),
    ]
}

fn texts(response: &AgentResponse) -> Vec<String> {
    response.messages().iter().map(Message::text).collect()
}

fn with_history() -> AgentRequest {
    AgentRequest::new("And now?").with_history([Message::user("Hi."), Message::assistant("Hello.")])
}

fn matches(response: &AgentResponse, ending: &Error) {
    match ending.kind() {
        ErrorKind::InvocationEnded => {
            assert_eq!(response.end_reason(), &EndReason::EndedByCallback)
        }
        _ => assert_eq!(response.interrupts()[0].name, "wait"),
    }
}

#[tokio::test]
async fn an_agent_that_ends_before_it_begins_keeps_the_conversation() {
    for ending in endings() {
        let raised = ending.clone();
        let agent = Agent::builder(ScriptedModel::new([]))
            .on_agent(before_agent(move |_| Err::<(), _>(raised.clone())))
            .build()
            .unwrap();
        let response = agent.run(with_history()).await.unwrap();
        matches(&response, &ending);
        assert_eq!(texts(&response), ["Hi.", "Hello.", "And now?"]);
        assert_eq!(response.new_messages().len(), 0);
    }
}

#[tokio::test]
async fn an_answer_of_an_agent_layer_continues_the_conversation() {
    let agent = Agent::builder(ScriptedModel::new([]))
        .agent_layer(wrap_agent(async |_, _| {
            Ok(AgentResponse::new([Message::assistant("from the layer")]))
        }))
        .build()
        .unwrap();
    let response = agent.run(with_history()).await.unwrap();
    assert_eq!(
        texts(&response),
        ["Hi.", "Hello.", "And now?", "from the layer"]
    );
    assert_eq!(response.new_messages().len(), 1);
}

/// Layers that say something else of every error.
#[tokio::test]
async fn a_layer_that_renames_an_ending_loses_nothing_of_the_conversation() {
    for ending in endings() {
        let (in_model, in_tool) = (ending.clone(), ending.clone());
        let echo = || Tool::function("echo", "", |value: Value| value);
        let plan = || Turn::response(ModelResponse::from_text("plan")).and_tool("echo", json!(1));
        let renamed = |_: Error| Error::from("something went wrong");
        let of_model = Agent::builder(ScriptedModel::new([plan()]))
            .tool(echo())
            .model_layer(MapErrLayer::new(renamed))
            .on_model(before_model(move |request| {
                match request.context().iteration() {
                    0 => Ok(()),
                    _ => Err(in_model.clone()),
                }
            }));
        let of_tool = Agent::builder(ScriptedModel::new([plan()]))
            .tool(echo())
            .tool_layer(MapErrLayer::new(renamed))
            .on_tool(before_tool(move |_| Err::<(), _>(in_tool.clone())));

        let response = of_model.build().unwrap().run(with_history()).await.unwrap();
        matches(&response, &ending);
        assert_eq!(texts(&response), ["Hi.", "Hello.", "And now?", "plan", ""]);

        let response = of_tool.build().unwrap().run(with_history()).await.unwrap();
        matches(&response, &ending);
        let told: Vec<_> = response
            .new_messages()
            .flat_map(Message::tool_results)
            .collect();
        match ending.kind() {
            ErrorKind::InvocationEnded => {
                assert_eq!(told[0].text(), "not run: the agent has ended")
            }
            _ => assert!(told.is_empty(), "a resume finds the call again: {told:?}"),
        }
    }
}

/// A `before` asks another model, whose guard aborts the run, and makes nothing of it.
#[tokio::test]
async fn no_call_is_made_once_a_hook_has_seen_the_run_aborted() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let guard =
        || before_model(|_| Err::<(), _>(Error::abort("enough"))).layer(ScriptedModel::new([]));
    let model = before_model(move |request| {
        let asked = guard().oneshot(request.clone());
        async move {
            let _ = asked.await;
            Action::<ModelResponse>::Continue
        }
    })
    .layer(tower::service_fn(move |_: ModelRequest| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, Error>(ModelResponse::from_text("hi")) }
    }));
    let error = model.oneshot(ModelRequest::default()).await.unwrap_err();
    assert_eq!(
        (error.kind(), calls.load(Ordering::SeqCst)),
        (ErrorKind::Aborted, 0)
    );
}
