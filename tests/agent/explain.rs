//! `explain`: what it shows of callbacks, layers and models.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;
use tower_agent::callback::{Bundle, before_model, before_tool, wrap_model, wrap_tool};
use tower_agent::{Agent, AgentRequest, Callbacks, ModelRequest, Tool};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::timeout::CallTimeoutLayer;
use tower_agent_test::{RecordLayer, ScriptedModel, Turn};

const MINUTE: Duration = Duration::from_secs(60);

fn says(text: &str) -> ScriptedModel {
    ScriptedModel::always(Turn::from_text(text))
}

#[test]
fn explain_shows_the_types_of_layers_and_models_and_the_names_of_wraps() {
    let stack = ServiceBuilder::new()
        .concurrency_limit(4)
        .layer(CallRetryLayer::new());
    let attempt = ServiceBuilder::new()
        .layer(CallRetryLayer::new())
        .timeout(MINUTE)
        .layer(before_model(|_| ()))
        .service(says("a"));
    let pass = wrap_model(|request, mut next| async move { next.run(request).await });
    let list = Callbacks::new()
        .with(before_model(|_| ()).named("brief"))
        .with(before_model(|_| ()).named("polite"));
    let tool = Tool::function("look", "Looks.", |_: ()| ())
        .layer(
            ServiceBuilder::new()
                .timeout(MINUTE)
                .concurrency_limit(1)
                .into_inner(),
        )
        .layer(wrap_tool(|request, mut next| async move { next.run(request).await }).named("timed"))
        .layer(Callbacks::new().with(before_tool(|_| ()).named("polite")));
    let agent = Agent::builder(
        Fallback::new(attempt)
            .or(says("b"))
            .or(Fallback::new(says("c"))),
    )
    .model_layer(stack.into_inner())
    .model_layer(pass.named("passes"))
    .model_layer(list)
    .model_layer((ConcurrencyLimitLayer::new(1), CallTimeoutLayer::new(MINUTE)))
    .tool(tool)
    .build()
    .unwrap();
    assert_eq!(
        agent.explain().to_string(),
        "\
agent `agent`
  loop of at most 25 model calls
    model call
      [Stack<CallRetryLayer, Stack<ConcurrencyLimitLayer, Identity>>]
        [passes]
          brief, polite
            [(ConcurrencyLimitLayer, CallTimeoutLayer<ModelRequest>)]
              Fallback
    tool calls, 8 at a time
      [Stack<ConcurrencyLimitLayer, Stack<TimeoutLayer, Identity>>]
        [timed]
          polite
            look
"
    );
}

#[test]
fn a_wrap_without_a_name_is_shown_by_its_place() {
    let pass = wrap_model(|request: ModelRequest, mut next| async move { next.run(request).await });
    let agent = Agent::builder(says("a")).model_layer(pass).build().unwrap();
    let told = agent.explain().to_string();
    assert!(
        told.contains("[wrap_model at tests/agent/explain.rs:"),
        "{told}"
    );
}

#[tokio::test]
async fn registered_layers_and_callbacks_run_and_are_shown() {
    let record = RecordLayer::<ModelRequest>::new();
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
        .model_layer(CallRetryLayer::new())
        .model_layer(record.clone())
        .on_tool(Approval::of_effects())
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(record.requests().len(), 1);
    let told = agent.explain().to_string();
    assert!(
        told.contains("[CallRetryLayer]") && told.contains("Approval"),
        "{told}"
    );
}

/// Of the agents around, of the agent itself and of the run, at every place that a bundle has.
#[tokio::test]
async fn the_callbacks_of_bundles_are_shown_in_the_order_in_which_they_run() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let bundle = |owner: &str| {
        let at = |place: &str| {
            let name = format!("{place} of {owner}");
            let order = order.clone();
            let ran = name.clone();
            before_model(move |_| order.lock().unwrap().push(ran.clone())).named(name)
        };
        Bundle::new()
            .outermost_model(at("outermost"))
            .on_model(at("around"))
            .innermost_model(at("innermost"))
    };
    let inner = Agent::builder(says("done"))
        .name("inner")
        .callbacks(bundle("own"))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .global_callbacks(bundle("team"))
        .agent(inner)
        .build()
        .unwrap();
    let request = AgentRequest::new("?")
        .with_global_callbacks(bundle("user"))
        .with_callbacks(bundle("run"));

    let shown = team.explain_for(&request).to_string();
    team.run(request).await.unwrap();

    let shown = shown.lines().flat_map(|line| line.trim().split(", "));
    let shown: Vec<_> = shown
        .filter(|name| !name.starts_with("loop") && name.contains(" of "))
        .collect();
    let order = order.lock().unwrap();
    assert_eq!(shown, *order);
    assert_eq!(order.len(), 12);
}
