//! Calls that reach a model, and those that do not.

use std::sync::{Arc, Mutex};

use opentelemetry::Context;
use opentelemetry::trace::TraceContextExt;
use tower_agent::callback::{Callback, before_model};
use tower_agent::{Action, Agent, Error, ErrorKind, ModelRequest, ModelResponse, Request, Result};
use tower_agent_test::{ScriptedModel, Turn};
use tracing::{Instrument, info, info_span};

use crate::conventions::at;
use crate::received::Look;
use crate::world::World;

/// Waits, answers the second call, and refuses the third.
#[derive(Default)]
struct Answers(Mutex<u32>);

impl Callback<ModelRequest> for Answers {
    async fn before(&self, _: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        info!("looked up");
        tokio::task::yield_now().await;
        let mut calls = self.0.lock().unwrap();
        *calls += 1;
        match *calls {
            1 => Ok(Action::Continue),
            2 => Ok(Action::Respond(ModelResponse::from_text("No."))),
            _ => Err(Error::new(ErrorKind::Denied, "not you")),
        }
    }
}

#[tokio::test]
async fn a_call_that_no_model_has_received_is_no_client_span_and_has_no_host() {
    let world = World::new();
    let model = ScriptedModel::always(Turn::from_text("Yes."));
    let agent = Agent::builder(at(model, "gpt-5", "models.test"))
        .on_model(Answers::default())
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();

    agent.run("?").await.unwrap();
    let data = world.received();
    let sent = data.spans.one("chat gpt-5");
    assert_eq!(sent.kind, 3);
    assert_eq!(sent.get("server.address").as_deref(), Some("models.test"));
    assert_eq!(sent.get("tower_agent.answered_without_model"), None);
    assert_eq!(sent.events_of("looked up").len(), 1);

    agent.run("?").await.unwrap();
    agent.run("?").await.unwrap_err();
    let data = world.received();
    let chats = data.spans.0.iter().filter(|span| span.name == "chat");
    let chats: Vec<_> = chats.collect();
    for (chat, is_answered) in chats.iter().zip([true, false]) {
        assert_eq!(chat.kind, 1);
        for key in ["server.address", "server.port", "gen_ai.provider.name"] {
            assert_eq!(chat.get(key), None, "{key}");
        }
        let answered = chat.get("tower_agent.answered_without_model");
        assert_eq!(answered.as_deref(), is_answered.then_some("true"));
        let error = (!is_answered).then_some("denied");
        assert_eq!(chat.error().as_deref(), error);
        // What happens before the model is part of the call all the same.
        assert_eq!(chat.events_of("looked up").len(), 1);
    }
    assert_eq!(chats.len(), 2);
    // The SDK sums up: of the first call alone.
    let durations = data
        .metrics
        .counts("gen_ai.client.inference.duration", "error.type");
    assert_eq!(durations, [(String::new(), 1)].into());
}

/// What a model does at once, in the poll that reaches it, is in the span of its call.
#[tokio::test]
async fn the_spans_and_the_context_of_a_model_are_those_of_its_call() {
    for waits in [false, true] {
        let world = World::new();
        let seen: Arc<Mutex<Vec<_>>> = Arc::default();
        let noted = seen.clone();
        let model = tower::service_fn(move |_: ModelRequest| {
            let noted = noted.clone();
            async move {
                if waits {
                    tokio::task::yield_now().await;
                }
                let context = Context::current();
                noted
                    .lock()
                    .unwrap()
                    .push(context.span().span_context().span_id());
                async {}.instrument(info_span!("http")).await;
                Ok::<_, Error>(ModelResponse::from_text("hi"))
            }
        });
        let agent = Agent::builder(model)
            .on_model(before_model(|request| {
                assert!(!request.context().run_id().is_empty());
            }))
            .global_callbacks(world.telemetry())
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        let spans = world.spans();
        assert_eq!(spans.tree(), "invoke_agent agent(chat(http))");
        let [id] = seen.lock().unwrap()[..] else {
            panic!("not one call")
        };
        assert_eq!(spans.one("chat").span_id, id.to_bytes());
    }
}

/// What outlives the call does not keep the spans around it open.
#[tokio::test]
async fn a_span_around_a_run_ends_though_its_response_is_kept() {
    let world = World::new();
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    let response = agent.run("?").instrument(info_span!("request")).await;
    let tree = world.spans().tree();
    assert_eq!(tree, "request(invoke_agent agent(chat))");
    assert_eq!(response.unwrap().text(), "hi");
}

/// Attempts side by side, each of which a group polls only if it was woken.
#[tokio::test]
async fn attempts_side_by_side_are_one_call() {
    let world = World::new();
    let both = tower_agent::callback::wrap_model(async |request: ModelRequest, next| {
        let mut attempts: futures::stream::FuturesUnordered<_> = (0..2)
            .map(|_| {
                let (request, mut next) = (request.clone(), next.clone());
                async move { next.run(request).await }
            })
            .collect();
        let mut last = None;
        while let Some(answer) = futures::StreamExt::next(&mut attempts).await {
            last = Some(answer?);
        }
        last.ok_or_else(|| Error::new(ErrorKind::Other, "none"))
    });
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .model_layer(both)
        .global_callbacks(world.telemetry())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    let spans = world.spans();
    assert_eq!(spans.tree(), "invoke_agent agent(chat)");
    assert_eq!(spans.one("chat").kind, 3);
}
