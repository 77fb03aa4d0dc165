//! Endings raised by layers, and while the answer of a tool is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use serde_json::json;
use tower::{Service, ServiceExt, service_fn};
use tower_agent::agent::ToolAnswer;
use tower_agent::call::CallKind;
use tower_agent::callback::LayerInner;
use tower_agent::callback::{before_agent, before_model, wrap_model};
use tower_agent::{
    Agent, AgentRequest, EndReason, Error, ErrorKind, Interrupt, Message, ModelRequest,
    ModelResponse, Request, Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::{Layer, layer_fn};

/// How often something was entered.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

fn asks() -> Error {
    Error::interrupt(Interrupt::new("q", "input_required"))
}

/// A layer that answers a failed model call, whatever has failed it.
fn forgives()
-> impl Layer<LayerInner<ModelRequest>, Service = impl tower_agent::model::ModelService> {
    layer_fn(|seam: LayerInner<ModelRequest>| {
        seam.then(async |result: Result<ModelResponse, Error>| {
            Ok::<_, Error>(
                result.unwrap_or_else(|_| ModelResponse::new(Message::assistant("never mind"))),
            )
        })
    })
}

#[tokio::test]
async fn an_abort_raised_in_a_wrap_is_not_undone_by_a_layer_outside() {
    let agent = Agent::builder(ScriptedModel::new([]))
        .model_layer(forgives())
        .model_layer(wrap_model(async |_, _| Err(Error::abort("enough"))))
        .build()
        .unwrap();

    let error = agent.run("?").await.unwrap_err();

    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, "enough")
    );
}

#[tokio::test]
async fn a_wrap_is_not_entered_in_a_run_that_is_over() {
    let (entered, calls) = (Count::default(), Count::default());
    let (enters, counts) = (entered.clone(), calls.clone());
    let twice = layer_fn(move |seam: LayerInner<ModelRequest>| {
        let counts = counts.clone();
        service_fn(move |request: ModelRequest| {
            let (mut seam, counts) = (seam.clone(), counts.clone());
            async move {
                for _ in 0..2 {
                    counts.add();
                    drop(seam.ready().await?.call(request.clone()).await);
                }
                Err::<ModelResponse, _>(Error::new(ErrorKind::Other, "both have failed"))
            }
        })
    });
    let aborts = Turn::error(Error::abort("enough"));
    let agent = Agent::builder(ScriptedModel::always(aborts))
        .model_layer(twice)
        .model_layer(wrap_model(move |request, mut next| {
            enters.add();
            async move { next.run(request).await }
        }))
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().kind(), ErrorKind::Aborted);

    assert_eq!((calls.get(), entered.get()), (2, 1));
}

#[tokio::test]
async fn an_interrupt_raised_by_a_layer_around_the_agent_pauses_the_run() {
    let model = ScriptedModel::new([Turn::from_text("done")]);
    let agent = Agent::builder(model.clone())
        .agent_layer(layer_fn(|seam: LayerInner<AgentRequest>| {
            seam.and_then(async |_| Err::<tower_agent::AgentResponse, _>(asks()))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        response.end_reason(),
        &EndReason::Interrupted([Interrupt::new("q", "input_required")].into())
    );
    model.assert_done();
}

#[tokio::test]
async fn an_interrupt_raised_by_a_layer_around_the_model_pauses_the_run() {
    let agent = Agent::builder(ScriptedModel::new([]))
        .model_layer(layer_fn(|_: LayerInner<ModelRequest>| {
            service_fn(async |_: ModelRequest| Err::<ModelResponse, _>(asks()))
        }))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert_eq!(
        response.end_reason(),
        &EndReason::Interrupted([Interrupt::new("q", "input_required")].into())
    );
}

#[tokio::test]
async fn an_agents_layers_are_not_entered_in_a_run_that_is_over() {
    let entered = Count::default();
    let enters = entered.clone();
    let aborts = Agent::builder(ScriptedModel::new([]))
        .name("first")
        .on_agent(before_agent(|_| Err::<(), _>(Error::abort("enough"))))
        .build()
        .unwrap();
    let late = Agent::builder(ScriptedModel::new([]))
        .name("second")
        .agent_layer(layer_fn(move |seam: LayerInner<AgentRequest>| {
            let enters = enters.clone();
            seam.map_request(move |request| {
                enters.add();
                request
            })
        }))
        .build()
        .unwrap();
    let both = Tool::function_with("both", "Asks both.", move |_: serde_json::Value, call| {
        let (aborts, late): (Agent, Agent) = (aborts.clone(), late.clone());
        async move {
            let call: ToolRequest = call;
            let request = || AgentRequest::new("?").with_context(call.context().clone());
            let first = aborts.run(request()).await.unwrap_err();
            let second = late.run(request()).await.unwrap_err();
            assert_eq!(
                (first.kind(), second.kind()),
                (ErrorKind::Aborted, ErrorKind::Aborted)
            );
        }
    });
    let agent = Agent::builder(ScriptedModel::new([Turn::tool("both", json!({}))]))
        .tool(both)
        .build()
        .unwrap();

    assert_eq!(agent.run("?").await.unwrap_err().message(), "enough");

    assert_eq!(entered.get(), 0);
}

#[tokio::test]
async fn an_interrupt_raised_while_an_answer_is_shown_keeps_the_answer() {
    let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Paid.")]);
    let agent = Agent::builder(model)
        .tool(Tool::function(
            "pay",
            "Pays.",
            |_: serde_json::Value| "paid 5",
        ))
        .tool_result_messages(|_: ToolAnswer| Err::<Option<Vec<Message>>, _>(asks()))
        .build()
        .unwrap();

    let response = agent.run("?").await.unwrap();

    assert!(
        !response.interrupts().is_empty(),
        "{:?}",
        response.end_reason()
    );
    let told = response.new_messages().flat_map(Message::tool_results);
    let told: Vec<_> = told
        .map(|result| (result.text(), result.is_error))
        .collect();
    assert_eq!(told, [("paid 5".to_owned(), false)]);
}

/// A model that aborts while it becomes ready.
#[derive(Clone)]
struct Unready;

impl Service<ModelRequest> for Unready {
    type Response = ModelResponse;
    type Error = Error;
    type Future = std::future::Ready<Result<ModelResponse, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Err(Error::abort("enough")))
    }

    fn call(&mut self, _: ModelRequest) -> Self::Future {
        std::future::ready(Ok(ModelResponse::from_text("unreachable")))
    }
}

#[tokio::test]
async fn an_abort_of_a_model_that_becomes_ready_is_not_undone_by_a_layer_outside() {
    let agent = || Agent::builder(Unready).model_layer(forgives_unready());
    let asks_nothing = before_model(|_| {});
    for agent in [agent(), agent().on_model(asks_nothing.clone())] {
        let error = agent.build().unwrap().run("?").await.unwrap_err();

        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Aborted, "enough")
        );
        assert_eq!(error.call().unwrap().kind, CallKind::Model);
    }
}

/// A layer that answers a model call of which anything fails, even its readiness.
fn forgives_unready()
-> impl Layer<LayerInner<ModelRequest>, Service = impl tower_agent::model::ModelService> {
    layer_fn(|seam: LayerInner<ModelRequest>| {
        service_fn(move |request: ModelRequest| {
            let seam = seam.clone();
            async move {
                let answer = seam.oneshot(request).await;
                let forgiven = |_| ModelResponse::new(Message::assistant("never mind"));
                Ok::<_, Error>(answer.unwrap_or_else(forgiven))
            }
        })
    })
}
