//! Callbacks outside everything else and directly around the targets.

use std::task::{Context, Poll};

use serde_json::json;
use tower::layer::layer_fn;
use tower::util::MapResponseLayer;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_agent::callback::{
    Bundle, after_agent, after_model, after_tool, before_model, before_tool, on_tool_error,
};
use tower_agent::compat::Semantics;
use tower_agent::model::BoxModel;
use tower_agent::stream::{CallbackDecision, EventKind};
use tower_agent::{
    Action, Agent, AgentBuilder, AgentResponse, Callback, Error, ErrorKind, Message, ModelRequest,
    ModelResponse, Recovery, Result, ToolRequest, ToolResponse,
};
use tower_agent_test::{ScriptedModel, Turn};

use super::echo;
use futures::StreamExt;
use test_support::trace::Trace;

fn turns() -> [Turn; 2] {
    [Turn::tool("echo", json!("a")), Turn::from_text("Done.")]
}

/// Returns what the model reads of its call.
fn read(model: &ScriptedModel) -> String {
    let requests = model.requests();
    let messages = requests[1].messages();
    messages
        .iter()
        .flat_map(Message::tool_results)
        .next()
        .unwrap()
        .text()
}

#[tokio::test]
async fn an_outermost_callback_is_outside_the_layers_of_the_tree_and_inside_a_journal() {
    let trace = Trace::default();
    let layer = |name: &'static str| {
        let trace = trace.clone();
        MapResponseLayer::new(move |response: ToolResponse| {
            trace.push(name);
            response
        })
    };
    let notes = |name: &'static str| {
        let trace = trace.clone();
        after_tool(move |_, _| trace.push(name))
    };
    let pass = || tower::layer::util::Identity::new();
    let journal = Bundle::new().journal(pass(), pass(), layer("journal"));
    let agent = Agent::builder(ScriptedModel::new(turns()))
        .tool(echo())
        .callbacks(Bundle::new().outermost_tool(notes("own")))
        .on_tool(notes("band"))
        .global_callbacks(journal.outermost_tool(notes("tree")))
        .global_callbacks(Bundle::new().tool_layer(layer("layer of the tree")))
        .build()
        .unwrap();

    agent.run("?").await.unwrap();

    assert_eq!(trace.take(), "band layer of the tree own tree journal");
}

#[tokio::test]
async fn an_outermost_callback_sees_the_errors_of_hooks() {
    let model = ScriptedModel::new(turns());
    let hide = on_tool_error(|_, error: &Error| {
        let hidden = Error::new(error.kind(), "hidden");
        Recovery::<ToolResponse>::Fail(hidden)
    });
    let agent = Agent::builder(model.clone())
        .tool(echo())
        .on_tool(before_tool(|_| -> Result<()> {
            Err(Error::new(ErrorKind::Other, "a secret"))
        }))
        .callbacks(Bundle::new().outermost_tool(hide))
        .build()
        .unwrap();

    let mut run = agent.stream("?");
    let mut failed = Vec::new();
    while let Some(event) = run.next().await {
        if let EventKind::Callback(note) = &event.kind
            && let CallbackDecision::Failed(kind) = note.decision
        {
            failed.push(kind);
        }
    }

    assert_eq!(read(&model), "callback failed: hidden");
    assert_eq!(failed, [ErrorKind::Other]);
}

#[tokio::test]
async fn a_response_that_an_outermost_callback_changes_keeps_its_origin() {
    for semantics in [Semantics::default(), Semantics::adk_elixir()] {
        let model = ScriptedModel::new(turns());
        let same = after_model(|_, response: &tower_agent::ModelResponse| {
            Action::Respond(response.clone())
        });
        let agent = Agent::builder(model.clone())
            .semantics(semantics)
            .tool(echo())
            .callbacks(Bundle::new().outermost_model(same))
            .build()
            .unwrap();

        let response = agent.run("?").await.unwrap();

        assert_eq!(
            response.text(),
            "Done.",
            "no response of an `after` ends the run"
        );
    }
}

/// Notes when it is asked, and whether nothing is between it and the other one.
struct Edge(&'static str, Trace);

impl Callback<ModelRequest> for Edge {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let Self(name, trace) = self;
        trace.push(format!("{name} {}", request.is_direct()));
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn the_inner_one_of_a_pair_is_asked_where_something_is_between() {
    type Between = fn(AgentBuilder) -> AgentBuilder;
    let between: [(&str, Between); 6] = [
        ("outer true", |agent| agent),
        ("outer false inner false", |agent| {
            agent.on_model(before_model(|_| {}))
        }),
        ("outer false inner false", |agent| {
            agent.model_layer(tower::layer::util::Identity::new())
        }),
        ("outer false inner false", |agent| {
            agent.global_callbacks(Bundle::new().model_layer(tower::layer::util::Identity::new()))
        }),
        ("outer false inner false", |agent| {
            agent.global_callbacks(Bundle::new().outermost_model(before_model(|_| {})))
        }),
        ("outer false inner false", |agent| {
            agent.global_callbacks(Bundle::new().innermost_model(before_model(|_| {})))
        }),
    ];
    for (number, (expected, between)) in between.into_iter().enumerate() {
        for is_global in [true, false] {
            let trace = Trace::default();
            let edge = |name| Edge(name, trace.clone());
            let pair = Bundle::new().edges_of_model(edge("outer"), edge("inner"));
            let model = ScriptedModel::new([Turn::from_text("Done.")]);
            let agent = between(Agent::builder(model));
            let agent = if is_global {
                agent.global_callbacks(pair)
            } else {
                agent.callbacks(pair)
            };
            agent.build().unwrap().run("?").await.unwrap();
            assert_eq!(trace.take(), expected, "{number}, {is_global}");
        }
    }
}

#[tokio::test]
async fn an_outermost_callback_of_an_agent_changes_the_transcript() {
    let hide = after_agent(|_, response: &AgentResponse| {
        let hidden = response.map_messages(|message| {
            message
                .text()
                .contains("secret")
                .then(|| Message::assistant("hidden"))
        });
        hidden.map_or(Action::Continue, Action::Respond)
    });
    let agent = Agent::builder(ScriptedModel::new([Turn::from_text("Done.")]))
        .callbacks(Bundle::new().outermost_agent(hide))
        .on_agent(after_agent(|_, _| {
            Action::Respond(AgentResponse::new([Message::assistant("a secret")]))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(response.text(), "hidden");
    let checkpoint = serde_json::to_string(&response.checkpoint()).unwrap();
    assert!(!checkpoint.contains("secret"), "{checkpoint}");
}

/// A service that never becomes ready, and says why.
#[derive(Clone)]
struct Broken;

impl Service<ToolRequest> for Broken {
    type Response = ToolResponse;
    type Error = Error;
    type Future = std::future::Pending<Result<ToolResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Err(Error::new(
            ErrorKind::Connection,
            "no way to ann@example.com",
        )))
    }

    fn call(&mut self, _: ToolRequest) -> Self::Future {
        std::future::pending()
    }
}

#[tokio::test]
async fn an_outermost_callback_sees_why_a_layer_does_not_become_ready() {
    let hides = || {
        let hide = on_tool_error(|_, _| Recovery::Fail(Error::new(ErrorKind::Tool, "hidden")));
        Bundle::new().outermost_tool(hide)
    };
    let inside = || MapResponseLayer::new(|response: ToolResponse| response);
    for with in [hides(), hides().and(hides()), hides().tool_layer(inside())] {
        let model = ScriptedModel::new(turns());
        let agent = Agent::builder(model.clone())
            .tool(echo())
            .tool_layer(layer_fn(|_| Broken))
            .on_tool(before_tool(|_| {}))
            .global_callbacks(with)
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        assert!(read(&model).contains("hidden"), "{}", read(&model));
    }
}

/// Asks a model before each call.
struct Asks(BoxModel);

impl Callback<ModelRequest> for Asks {
    async fn before(&self, _: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        self.0.clone().oneshot(ModelRequest::default()).await?;
        Ok(Action::Continue)
    }
}

#[tokio::test]
async fn an_outermost_callback_waits_for_no_service() {
    // One call at a time: a call that a callback makes meanwhile would wait for ever.
    let model = ScriptedModel::always(Turn::from_text("hi"));
    let one = ServiceBuilder::new().concurrency_limit(1).service(model);
    let asks = Asks(BoxModel::new(one.clone()));
    let agent = Agent::builder(one)
        .callbacks(Bundle::new().outermost_model(asks))
        .build()
        .unwrap();
    assert_eq!(agent.run("?").await.unwrap().text(), "hi");
}
