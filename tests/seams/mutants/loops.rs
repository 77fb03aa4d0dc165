//! What the loop and its stream do with steps, ids and agents that are dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt;
use serde_json::json;
use tokio::sync::Notify;
use tower::{Service, ServiceExt, service_fn};
use tower_agent::callback::LayerInner;
use tower_agent::message::ToolCall;
use tower_agent::stream::EventKind;
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentRequest, BoxError, Message, ModelRequest, ModelResponse, Part, Role, Tool,
};
use tower_layer::layer_fn;

use test_support::transcript::{left, said};

#[tokio::test]
async fn a_turn_ends_before_another_agent_takes_over() {
    let billing = Agent::builder(ScriptedModel::new([Turn::from_text("Paid.")])).name("billing");
    let hands = Turn::tool("transfer_to_agent", json!({ "agent": "billing" }));
    let desk = Agent::builder(ScriptedModel::new([hands]))
        .name("desk")
        .sub_agent(billing.build().unwrap())
        .build()
        .unwrap();

    let events: Vec<_> = desk.stream("?").collect().await;

    let told = events.iter().filter_map(|event| {
        let agent = event.invocation.agent();
        match event.kind {
            EventKind::AgentStarted => Some(format!("{agent}>")),
            EventKind::AgentFinished { .. } => Some(format!("<{agent}")),
            EventKind::StepStarted { .. } => Some(format!("{agent}(")),
            EventKind::StepFinished { .. } => Some(format!("){agent}")),
            _ => None,
        }
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told.join(" "),
        "desk> desk( )desk billing> billing( )billing <billing <desk"
    );
}

/// A model that calls `look` with these ids, and then is done.
fn calls(ids: &'static [&'static str]) -> impl tower_agent::model::ModelService {
    service_fn(move |request: ModelRequest| async move {
        let has_called = request
            .messages()
            .last()
            .is_some_and(|it| it.role() == Role::Tool);
        let call = |(n, id): (usize, &&str)| Part::ToolCall(ToolCall::new(*id, "look", json!(n)));
        let said = match has_called {
            true => Message::assistant("done"),
            false => Message::new(Role::Assistant, ids.iter().enumerate().map(call)),
        };
        Ok::<_, BoxError>(ModelResponse::new(said))
    })
}

#[tokio::test]
async fn a_call_without_an_id_gets_one_and_of_equal_ids_the_first_keeps_it() {
    for ids in [
        &[""][..],
        &["x", "x"],
        &["x", "x", "x"],
        &["", "x"],
        &["x", "", "x", ""],
    ] {
        let agent = Agent::builder(calls(ids))
            .tool(Tool::function("look", "Looks.", |n: u32| n))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        let asked: Vec<_> = response
            .new_messages()
            .flat_map(Message::tool_calls)
            .collect();
        assert_eq!(asked.len(), ids.len());
        for (index, call) in asked.iter().enumerate() {
            assert!(!call.id.is_empty(), "{ids:?}");
            assert!(
                asked[..index].iter().all(|other| other.id != call.id),
                "{ids:?}"
            );
        }
        if let Some(first) = ids.iter().position(|id| *id == "x") {
            assert_eq!(&*asked[first].id, "x", "{ids:?}");
        }
        let answered = response.new_messages().flat_map(Message::tool_results);
        let answered: Vec<_> = answered.map(|it| (it.call_id.clone(), it.text())).collect();
        let wanted = asked
            .iter()
            .enumerate()
            .map(|(n, call)| (call.id.clone(), n.to_string()));
        assert_eq!(answered, wanted.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_next_call_continues_with_what_a_dropped_agent_has_streamed() {
    let waits = Arc::new(Notify::new());
    let (waiting, tries) = (waits.clone(), Arc::new(AtomicU32::new(0)));
    // It never answers when it is called first.
    let look = Tool::function("look", "Looks.", move |_: serde_json::Value| {
        let (waits, first) = (waits.clone(), tries.fetch_add(1, Ordering::Relaxed) == 0);
        async move {
            if first {
                waits.notify_one();
                std::future::pending::<()>().await;
            }
            "nothing"
        }
    });
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::new(Message::assistant("I look.")))
            .and_tool("look", json!({})),
        Turn::response(ModelResponse::new(Message::assistant("Again.")))
            .and_tool("look", json!({})),
        Turn::from_text("Nothing."),
    ]);
    let member = Agent::builder(model.clone())
        .name("member")
        .tool(look)
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agent_layer(layer_fn(move |seam: LayerInner<AgentRequest>| {
            let waiting = waiting.clone();
            service_fn(move |request: AgentRequest| {
                let (mut seam, waiting) = (seam.clone(), waiting.clone());
                async move {
                    let first = seam.ready().await?.call(request.clone());
                    tokio::select! {
                        _ = first => panic!("it waits"),
                        () = waiting.notified() => {}
                    }
                    seam.ready().await?.call(request).await
                }
            })
        }))
        .agent(member)
        .build()
        .unwrap();

    let mut run = team.stream("?");
    let events: Vec<_> = run.by_ref().collect().await;
    let response = run.response().await.unwrap();

    assert_eq!(response.text(), "Nothing.");
    assert_eq!(left(&events), said(response.new_messages()));
    model.assert_done();
}
