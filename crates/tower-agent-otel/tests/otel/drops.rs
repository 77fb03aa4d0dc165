//! A run that is dropped leaves no span open.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::trace::pending_once;
use tower_agent::callback::{on_model_error, wrap_model};
use tower_agent::{Agent, Error, ErrorKind, Recovery, RunStream, Tool};
use tower_agent_test::{ScriptedModel, Turn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::received::Look;
use crate::world::World;

fn worker() -> Agent {
    let model = ScriptedModel::always(Turn::from_text("Oslo, in the north")).chunk_size(3);
    let waits = wrap_model(async |request, mut next| {
        pending_once().await;
        next.run(request).await
    });
    Agent::builder(model)
        .name("worker")
        .model_layer(waits)
        .build()
        .unwrap()
}

/// An agent with tools in parallel, an agent as a tool, a retry, a transfer and a team.
fn agent(world: &World) -> Agent {
    let waits = Tool::function("waits", "Waits a little.", async |value: Value| {
        pending_once().await;
        pending_once().await;
        value
    });
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let model = ScriptedModel::new([
        Turn::from_text("half an answer").failing_after(2, busy),
        Turn::tool("waits", json!({ "value": 1 }))
            .and_tool("waits", json!({ "value": 2 }))
            .and_tool("worker", json!({ "request": "Where?" })),
        Turn::tool("transfer_to_agent", json!({ "agent_name": "team" })),
    ]);
    let team = Agent::parallel("team").agent(worker());
    Agent::builder(model.chunk_size(4))
        .name("boss")
        .tool(waits)
        .tool(worker().into_tool("Works."))
        .sub_agent(team.build().unwrap())
        .on_model(on_model_error(|_, _| Recovery::Retry))
        .global_callbacks(world.telemetry())
        .build()
        .unwrap()
}

/// Polls at most this many times, then drops the stream. Returns whether it has ended.
fn polled(mut stream: RunStream, times: usize) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (0..times).any(|_| matches!(stream.poll_next_unpin(&mut cx), Poll::Ready(None)))
}

/// Counts the spans that begin.
#[derive(Clone, Default)]
struct Begun(Arc<Mutex<usize>>);

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Begun {
    fn on_new_span(
        &self,
        _: &tracing::span::Attributes<'_>,
        _: &tracing::span::Id,
        _: tracing_subscriber::layer::Context<'_, S>,
    ) {
        *self.0.lock().unwrap() += 1;
    }
}

#[test]
fn a_streamed_run_that_is_dropped_at_any_poll_ends_every_span_once() {
    let world = World::new();
    let mut polls = 0;
    let mut cancelled = BTreeSet::new();
    loop {
        polls += 1;
        let begun = Begun::default();
        let done = {
            let subscriber = world.subscriber().with(begun.clone());
            let _guard = subscriber.set_default();
            polled(agent(&world).stream("?"), polls)
        };
        let spans = world.spans();
        let ids: BTreeSet<_> = spans.0.iter().map(|span| &span.span_id).collect();
        assert_eq!(
            ids.len(),
            spans.0.len(),
            "a span ended twice, after {polls} polls"
        );
        assert_eq!(
            ids.len(),
            *begun.0.lock().unwrap(),
            "after {polls} polls: {}",
            spans.tree()
        );
        for span in &spans.0 {
            assert!(span.parent_span_id.is_empty() || ids.contains(&span.parent_span_id));
            cancelled.extend(span.error().map(|error| (span.name.clone(), error)));
        }
        // Events may still wait for their reader when the last call has ended.
        let is_over = spans.0.len() == 12 && spans.0.iter().all(|span| span.error().is_none());
        if done {
            assert!(is_over, "{}", spans.tree());
            break;
        }
        if !spans.0.is_empty() && !is_over {
            let root = spans.one("invoke_agent boss");
            assert_eq!(
                root.error().as_deref(),
                Some("cancelled"),
                "after {polls} polls"
            );
        }
    }
    assert!(polls > 10, "only {polls}");
    assert!(
        cancelled.iter().all(|(_, error)| error == "cancelled"),
        "{cancelled:?}"
    );
    let names: BTreeSet<_> = cancelled.iter().map(|(name, _)| &**name).collect();
    for name in [
        "chat",
        "execute_tool waits",
        "execute_tool worker",
        "invoke_agent worker",
    ] {
        assert!(names.contains(name), "no {name} was dropped: {names:?}");
    }
}

#[test]
fn a_run_that_is_never_polled_has_no_span() {
    let world = World::new();
    drop(agent(&world).run("?"));
    drop(agent(&world).stream("?"));
    assert_eq!(world.spans().0.len(), 0);
}
