//! Tower layers in a bundle.

use serde_json::json;
use tower_agent::callback::{Bundle, Wrap, wrap_agent, wrap_model, wrap_tool};
use tower_agent::{
    Agent, AgentRequest, Callbacks, Error, ErrorKind, ModelRequest, Request, Result, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_middleware::approval::Approval;

use super::{echo, logs};
use test_support::trace::Trace;

/// Writes down when a call enters the layer and leaves it, and in which agent.
macro_rules! around {
    ($wrap:ident, $name:expr, $trace:expr) => {{
        let (name, trace): (&'static str, Trace) = ($name, $trace.clone());
        $wrap(move |request, mut next| {
            let trace = trace.clone();
            async move {
                trace.push(format!("{name}[{}", request.context().agent()));
                let result = next.run(request).await;
                trace.push(format!("]{name}"));
                result
            }
        })
        .named(name)
    }};
}

fn layers(name: &'static str, trace: &Trace) -> Bundle {
    Bundle::new()
        .agent_layer(around!(wrap_agent, name, trace))
        .model_layer(around!(wrap_model, name, trace))
        .tool_layer(around!(wrap_tool, name, trace))
}

fn model() -> ScriptedModel {
    ScriptedModel::new([Turn::tool("echo", json!(1)), Turn::from_text("done")])
}

#[tokio::test]
async fn a_trees_layers_are_outside_everything_and_a_runs_directly_inside_them() {
    let trace = Trace::default();
    let agent = Agent::builder(model())
        .tool(echo())
        .model_layer(around!(wrap_model, "own", trace))
        .callbacks(logs("own", &trace))
        .global_callbacks(logs("tree", &trace))
        .global_callbacks(layers("A", &trace))
        .global_callbacks(layers("B", &trace))
        .build()
        .unwrap();
    let request = AgentRequest::new("?").with_callbacks(layers("run", &trace));
    agent.run(request).await.unwrap();
    let (enter, leave) = ("A[agent B[agent run[agent", "]run ]B ]A");
    let model = format!("{enter} tree> own[agent own> <own ]own <tree {leave}");
    let tool = format!("{enter} tree> own> <own <tree {leave}");
    let agent = format!("{enter} tree> own> {model} {tool} {model} <own <tree {leave}");
    assert_eq!(trace.take(), agent);
}

#[tokio::test]
async fn a_trees_layers_are_around_the_calls_of_every_agent_in_it() {
    let trace = Trace::default();
    let worker = ScriptedModel::new([Turn::from_text("Oslo")]);
    let worker = Agent::builder(worker).name("worker").build().unwrap();
    let boss = ScriptedModel::new([
        Turn::tool("worker", json!({ "request": "Where?" })),
        Turn::from_text("done"),
    ]);
    let boss = Agent::builder(boss)
        .name("boss")
        .tool(worker.into_tool("Works."))
        .build()
        .unwrap();
    let team = Agent::sequential("team")
        .agent(boss)
        .global_callbacks(layers("A", &trace))
        .build()
        .unwrap();
    team.run("?").await.unwrap();
    assert_eq!(
        trace.take(),
        "A[team A[boss A[boss ]A A[boss A[worker A[worker ]A ]A ]A A[boss ]A ]A ]A"
    );
}

#[tokio::test]
async fn an_agents_own_bundle_has_its_layers_where_it_is_registered() {
    let trace = Trace::default();
    let agent = Agent::builder(model())
        .tool(echo())
        .callbacks(logs("first", &trace))
        .callbacks(
            Bundle::new()
                .on_tool(logger(&trace))
                .tool_layer(around!(wrap_tool, "A", trace)),
        )
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let said = trace.take();
    assert!(said.contains("first> A[agent b> <b ]A <first"), "{said}");
    let lines = agent.explain().to_string();
    let lines: Vec<_> = lines.lines().map(str::trim).collect();
    assert!(lines.ends_with(&["first", "[A]", "b", "echo"]), "{lines:?}");
}

fn logger(trace: &Trace) -> test_support::logger::Logger {
    test_support::logger::Logger::new("b", trace)
}

#[test]
fn explain_shows_a_trees_layers_at_every_call() {
    let trace = Trace::default();
    let agent = Agent::builder(model())
        .global_callbacks(layers("A", &trace))
        .global_callbacks(logs("tree", &trace))
        .build()
        .unwrap();
    let lines = agent.explain().to_string();
    assert_eq!(lines.matches("[A]").count(), 3, "{lines}");
    assert!(
        lines.starts_with("agent `agent`\n  [A]\n    tree\n"),
        "{lines}"
    );
}

fn guard_of(tool: &'static str) -> Callbacks<ToolRequest> {
    Callbacks::new().with(Approval::of_tools([tool]))
}

#[test]
fn a_tool_that_a_list_of_a_bundle_names_has_to_exist() {
    let of_tree = Agent::builder(model())
        .tool(echo())
        .global_callbacks(Bundle::new().tool_layer(guard_of("ehco")))
        .build();
    assert!(of_tree.unwrap_err().to_string().contains("ehco"));
    let own = Agent::builder(model())
        .tool(echo())
        .callbacks(Bundle::new().tool_layer(guard_of("ehco")))
        .build();
    assert!(own.unwrap_err().to_string().contains("ehco"));
}

#[tokio::test]
async fn a_tool_that_a_list_of_a_run_names_has_to_exist() {
    let agent = Agent::builder(model()).tool(echo()).build().unwrap();
    let request = AgentRequest::new("?").with_callbacks(Bundle::new().tool_layer(guard_of("ehco")));
    let error = agent.run(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(error.message().contains("ehco"), "{error}");
}

#[tokio::test]
async fn a_layer_of_a_bundle_cannot_undo_an_ending_and_its_panic_is_an_error() {
    let swallow: Wrap<ModelRequest> = wrap_model(async |request, mut next| {
        drop(next.run(request).await);
        Ok(tower_agent::ModelResponse::from_text("nothing happened"))
    });
    let abort = ScriptedModel::new([Turn::error(Error::abort("stop"))]);
    let bundle = Bundle::new().model_layer(swallow);
    let agent = Agent::builder(abort)
        .global_callbacks(bundle)
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);

    let panics = Bundle::new().model_layer(tower::util::MapRequestLayer::new(
        |_: ModelRequest| -> ModelRequest { panic!("oh no") },
    ));
    let agent = Agent::builder(model())
        .global_callbacks(panics)
        .build()
        .unwrap();
    let error = agent.run("?").await.unwrap_err();
    assert_eq!(error.message(), "a layer around the model panicked: oh no");
}

#[tokio::test]
async fn a_limit_that_calls_share_is_shared_by_a_bundles_calls() -> Result<(), tower_agent::BoxError>
{
    // Applied anew in each call: the semaphore is in the layer.
    let limit = tower::limit::GlobalConcurrencyLimitLayer::new(1);
    let probe = tower_agent_test::ProbeLayer::new().pending_polls(1);
    let turn = Turn::tool("echo", json!(1)).and_tool("echo", json!(2));
    let agent = Agent::builder(ScriptedModel::new([turn, Turn::from_text("done")]))
        .tool(echo().layer(probe.clone()))
        .global_callbacks(Bundle::new().tool_layer(limit))
        .build()?;
    agent.run("?").await?;
    assert_eq!(
        (probe.calls(), probe.violations(), probe.max_in_flight()),
        (2, 0, 1)
    );
    Ok(())
}
