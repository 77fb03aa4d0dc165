//! Decisions of the guard of the flow of data, and what is hidden from a model.

use serde_json::{Value, json};
use tower_agent::{Agent, Effect, Tool};
use tower_agent_middleware::flow::{Flow, Hide, ToolFlow};
use tower_agent_test::{ScriptedModel, Turn};

use crate::received::{Data, Look};
use crate::world::World;

const SECRET: &str = "SECRET-4711";

const DECISION: &str = "a tool call breaks a rule about the flow of data";

/// Lets a model read a mail and pay what it says.
async fn run(world: &World, flow: Flow, to: Value) -> Data {
    let flow = flow
        .tool("read_mail", ToolFlow::source())
        .tool("pay", ToolFlow::action());
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("pay", json!({ "to": to })),
        Turn::from_text("Done."),
    ]);
    let pay = Tool::function("pay", "Pays.", |_: Value| "paid").effect(Effect::Mutating);
    let read_mail = Tool::function("read_mail", "Reads.", |_: Value| SECRET).effect(Effect::Pure);
    Agent::builder(model)
        .name("assistant")
        .tools([pay, read_mail])
        .global_callbacks(world.telemetry())
        .global_callbacks(flow)
        .build()
        .unwrap()
        .run("What is new?")
        .await
        .unwrap();
    world.received()
}

#[tokio::test]
async fn a_decision_is_an_event_with_its_rules_and_the_label_and_no_value() {
    let hiding = Flow::new().hide(Hide::Everything);
    for (flow, to, rule, label) in [
        (Flow::new(), json!(SECRET), "TrustedContext", "Untrusted"),
        (
            hiding,
            json!({ "$ref": "@m1.0" }),
            "TrustedArgument",
            "Trusted",
        ),
    ] {
        let world = World::new();
        let data = run(&world, flow, to).await;
        let spans = data.spans.0.iter();
        let events: Vec<_> = spans.flat_map(|span| span.events_of(DECISION)).collect();
        let [event] = &events[..] else {
            panic!("{}", data.spans.tree())
        };
        let text = format!("{event:?}");
        for part in ["refused", "pay", "assistant/m2.0", rule, label] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let all = format!("{:?} {:?} {:?}", data.spans.0, data.logs, data.metrics.0);
        assert!(!all.contains(SECRET), "{all}");
        // A call that is not made has no span.
        assert!(
            !data
                .spans
                .0
                .iter()
                .any(|span| span.name == "execute_tool pay")
        );
    }
}
