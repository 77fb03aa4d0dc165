//! Bundles that say when they have nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tower_agent::callback::{Bundle, wrap_model};
use tower_agent::{Agent, AgentRequest};
use tower_agent_test::{ScriptedModel, Turn};

use crate::bundles::{echo, logs};
use test_support::logger::Logger;
use test_support::trace::Trace;

/// A bundle with callbacks for every call, with a layer, and with a callback directly around the
/// model.
fn everywhere(trace: &Trace) -> Bundle {
    let layer = trace.clone();
    logs("sometimes", trace)
        .model_layer(wrap_model(move |request, mut next| {
            layer.push("layer");
            async move { next.run(request).await }
        }))
        .innermost_model(Logger::new("innermost", trace))
}

fn agent(bundles: impl IntoIterator<Item = Bundle>) -> Agent {
    let call = || Turn::tool("echo", json!(1));
    let answer = || Turn::from_text("done");
    let model = ScriptedModel::new([call(), answer(), call(), answer()]);
    let agent = Agent::builder(model).tool(echo());
    let agent = bundles
        .into_iter()
        .fold(agent, |agent, bundle| agent.global_callbacks(bundle));
    agent.build().unwrap()
}

#[tokio::test]
async fn an_idle_bundle_is_gone_past_and_one_at_work_is_where_it_was_registered() {
    let trace = Trace::default();
    let is_idle = Arc::new(AtomicBool::new(true));
    let asked = is_idle.clone();
    let sometimes = everywhere(&trace).idle_when(move || asked.load(Ordering::Relaxed));
    let around = || (logs("first", &trace), logs("last", &trace));
    let (first, last) = around();
    let sometimes = agent([first, sometimes, last]);
    let (first, last) = around();
    let never = agent([first, last]);
    let (first, last) = around();
    let always = agent([first, everywhere(&trace), last]);

    sometimes.run("?").await.unwrap();
    let idle = trace.take();
    never.run("?").await.unwrap();
    assert_eq!(idle, trace.take());

    is_idle.store(false, Ordering::Relaxed);
    sometimes.run("?").await.unwrap();
    let at_work = trace.take();
    always.run("?").await.unwrap();
    assert_eq!(at_work, trace.take());

    // Listed in any case.
    is_idle.store(true, Ordering::Relaxed);
    let explained = sometimes.explain().to_string();
    assert_eq!(explained, always.explain().to_string());
    let explained = sometimes.explain_for(&AgentRequest::new("?")).to_string();
    assert_eq!(explained, always.explain().to_string());
}

#[tokio::test]
async fn a_bundle_that_is_joined_or_of_one_agent_or_of_a_request_is_always_called() {
    let trace = Trace::default();
    let idle = || logs("idle", &trace).idle_when(|| true);
    let expected = "idle> idle> <idle idle> <idle idle> <idle <idle";

    let joined = agent([Bundle::new().and(idle())]);
    joined.run("?").await.unwrap();
    assert_eq!(trace.take(), expected);

    let model = ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("done")]);
    let own = Agent::builder(model).tool(echo()).callbacks(idle());
    own.build().unwrap().run("?").await.unwrap();
    assert_eq!(trace.take(), expected);

    let request = AgentRequest::new("?").with_global_callbacks(idle());
    agent([]).run(request).await.unwrap();
    assert_eq!(trace.take(), expected);
}

#[tokio::test]
async fn a_sub_agent_goes_past_what_its_caller_has_gone_past_and_a_panic_is_no_answer() {
    let trace = Trace::default();
    let inner = Agent::builder(ScriptedModel::new([Turn::from_text("inner")]))
        .name("inner")
        .global_callbacks(logs("inner", &trace).idle_when(|| panic!("cannot say")))
        .build()
        .unwrap();
    let model = ScriptedModel::new([
        Turn::tool("inner", json!({ "request": "?" })),
        Turn::from_text("done"),
    ]);
    let outer = Agent::builder(model)
        .tool(inner.into_tool("Asks."))
        .global_callbacks(logs("outer", &trace).idle_when(|| true))
        .build()
        .unwrap();

    outer.run("?").await.unwrap();
    assert_eq!(trace.take(), "inner> inner> <inner <inner");
}
