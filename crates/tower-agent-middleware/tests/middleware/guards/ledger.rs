//! What runs have used: each attempt that reached a model counts once, and every view adds up to
//! it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use futures::StreamExt;
use serde_json::json;
use tower::service_fn;
use tower_agent::callback::{after_model, before_model};
use tower_agent::model::ModelService;
use tower_agent::stream::{Delta, EventKind, Piece};
use tower_agent::testing::{ScriptedModel, Turn};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Message, ModelRequest, ModelResponse, Request, Usage,
};
use tower_agent_middleware::budget::{Account, Budget, Limits};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::retry::CallRetryLayer;
use tower_layer::Layer;

fn account() -> Account {
    Account::new(Limits::new().tokens(1_000_000))
}

/// The tokens of a streamed run, as its events tell them, and as its response does.
async fn told(agent: &Agent, request: impl Into<AgentRequest>) -> (u64, u64) {
    let mut stream = agent.stream(request);
    let mut told = 0;
    while let Some(event) = stream.next().await {
        if let EventKind::Usage { usage } = event.kind {
            told += usage.total();
        }
    }
    let response = stream.response().await.unwrap();
    (told, response.usage().total())
}

/// Two attempts break after the provider has told 103 tokens each; the third answers with 110.
fn breaks_twice() -> impl ModelService {
    let calls = Arc::new(AtomicU32::new(0));
    service_fn(move |request: ModelRequest| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            let sender = request.delta_sender();
            if let (Some(sender), true) = (sender, call < 2) {
                let mut attempt = sender.open();
                attempt.send(Piece::Usage(Usage::new(100, 3))).await?;
                attempt.send(Delta::Text("half".into())).await?;
                return Err(Error::new(ErrorKind::Connection, "reset"));
            }
            let response = ModelResponse::from_text("fine").with_usage(Usage::new(100, 10));
            response.streamed_to(sender).await
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_breaks_is_counted_as_far_as_it_was_told() {
    let account = account();
    let agent = Agent::builder(breaks_twice())
        .model_layer(CallRetryLayer::new().restart_streams(true))
        .global_callbacks(Budget::of(account.clone()))
        .build()
        .unwrap();

    assert_eq!(told(&agent, "go").await, (316, 316));
    assert_eq!(account.used().tokens, 316);
    assert_eq!(account.used().model_calls, 1);
}

/// A first model whose answer of 15 tokens is refused inside a fallback, and another of 27.
fn refuses_the_first() -> Fallback {
    let says = |text: &str, usage| ScriptedModel::new([Turn::from_text(text).usage(usage)]);
    let check = after_model(|_, response| {
        if response.text().starts_with("as an AI") {
            return Err(Error::new(ErrorKind::Provider, "no answer"));
        }
        Ok(())
    });
    let first = check.layer(says("as an AI model", Usage::new(10, 5)));
    Fallback::new(first)
        .or(says("Paris", Usage::new(20, 7)))
        .restart_streams(true)
}

#[tokio::test]
async fn an_answer_that_a_check_in_a_fallback_refuses_is_not_free() {
    let account = account();
    let agent = |model| {
        let budget = Budget::of(account.clone());
        Agent::builder(model)
            .global_callbacks(budget)
            .build()
            .unwrap()
    };

    assert_eq!(told(&agent(refuses_the_first()), "go").await, (42, 42));
    assert_eq!(account.used().tokens, 42);

    let response = agent(refuses_the_first()).run("go").await.unwrap();
    assert_eq!(response.usage(), Usage::new(30, 12));
    assert_eq!(account.used().tokens, 84);
}

#[tokio::test]
async fn agents_inside_a_call_are_told_once() {
    let one = || Turn::from_text("done").usage(Usage::new(1, 1));
    let helper = |text: &str| {
        let turn = Turn::from_text(text).usage(Usage::new(100, 10));
        ScriptedModel::always(turn)
    };

    // A summary.
    let history: Vec<_> = (0..20)
        .flat_map(|turn| {
            let text = "x".repeat(400);
            [
                Message::user(format!("{turn} {text}")),
                Message::assistant(text),
            ]
        })
        .collect();
    let window = ContextWindow::new(1_000)
        .cut_to(500)
        .summariser(helper("SUMMARY"));
    let agent = Agent::builder(ScriptedModel::new([one()]))
        .on_model(window)
        .build()
        .unwrap();
    let (told_of_summary, counted) =
        told(&agent, AgentRequest::new("go").with_history(history)).await;
    assert!(counted > 110, "{counted}");
    assert_eq!(told_of_summary, counted);

    // A tool.
    let child = Agent::builder(helper("child"))
        .name("child")
        .build()
        .unwrap();
    let call = Turn::tool("child", json!({ "request": "go" })).usage(Usage::new(1, 1));
    let agent = Agent::builder(ScriptedModel::new([call, one()]))
        .tool(child.into_tool("Works."))
        .build()
        .unwrap();
    assert_eq!(told(&agent, "go").await, (114, 114));

    // One that a callback calls.
    let child = Agent::builder(helper("helped"))
        .name("helper")
        .build()
        .unwrap();
    let ask = before_model(move |request: &mut ModelRequest| {
        let inner = AgentRequest::new("help").with_context(request.context().clone());
        let child = child.clone();
        async move { child.run(inner).await.map(drop) }
    });
    let agent = Agent::builder(ScriptedModel::new([one()]))
        .on_model(ask)
        .build()
        .unwrap();
    assert_eq!(told(&agent, "go").await, (112, 112));
}
