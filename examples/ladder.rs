//! One concern on four rungs: removing a word from the model's responses.
//!
//! Each rung does the same and can do more than the one before. Use the lowest that is sufficient;
//! they can be mixed on one builder, in any order.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures::TryFutureExt;
use futures::future::MapOk;
use tower::util::MapResponseLayer;
use tower::{Layer, Service};
use tower_agent::callback::after_model;
use tower_agent::{Action, Agent, BoxError, Callback, ModelRequest, ModelResponse, Part, Result};

const SECRET: &str = "swordfish";

/// Removes the word; the rungs differ only in how they call this.
fn redact(mut response: ModelResponse) -> ModelResponse {
    for part in response.message_mut().parts_mut() {
        if let Part::Text(text) = part {
            text.text = text.text.replace(SECRET, "*****");
        }
    }
    response
}

// Each of these changes the complete response. Text that must not be shown while it streams needs a
// mapper as well, see `tower_agent::stream::map_fn`.

// 1. A closure. Use this when one hook of one call is all you need.
//
//     .on_model(after_model(|_, response| Action::Respond(redact(response.clone()))))

// 2. A `Callback`. Use this for a name, state of its own, or several hooks: `before`, `after`,
//    `on_error`, `on_end`.
struct Redact {
    answers: AtomicU32,
}

impl Callback<ModelRequest> for Redact {
    async fn after(&self, _: &ModelRequest, seen: &ModelResponse) -> Result<Action<ModelResponse>> {
        let answers = self.answers.fetch_add(1, Ordering::Relaxed) + 1;
        println!("   (answer {answers} of this agent)");
        Ok(Action::Respond(redact(seen.clone())))
    }

    fn name(&self) -> Cow<'static, str> {
        format!("Redact({} letters)", SECRET.len()).into()
    }
}

// 3. A `Layer`. Use this for code *around* the call, to time, limit or retry it. tower and
//    tower-http have most of these, and `wrap_model` makes one from a closure. A layer closes the
//    band of callbacks before it.
//
//     .model_layer(MapResponseLayer::new(redact))

// 4. A `Service` of your own with its layer. Use this for control over readiness (to wait or fail
//    before a call), or for a future without a box.
#[derive(Clone)]
struct RedactService<S> {
    inner: S,
}

impl<S> Service<ModelRequest> for RedactService<S>
where
    S: Service<ModelRequest, Response = ModelResponse>,
{
    type Response = ModelResponse;
    type Error = S::Error;
    type Future = MapOk<S::Future, fn(ModelResponse) -> ModelResponse>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        self.inner.call(request).map_ok(redact)
    }
}

struct RedactLayer;

impl<S> Layer<S> for RedactLayer {
    type Service = RedactService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RedactService { inner }
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let indiscreet = tower::service_fn(|_: ModelRequest| async {
        Ok::<_, BoxError>(ModelResponse::from_text(format!(
            "The password is {SECRET}."
        )))
    });
    let agent = || Agent::builder(indiscreet);

    let rungs = [
        ("no rung", agent()),
        (
            "a closure",
            agent().on_model(after_model(|_, response| {
                Action::Respond(redact(response.clone()))
            })),
        ),
        (
            "a callback",
            agent().on_model(Redact {
                answers: AtomicU32::new(0),
            }),
        ),
        (
            "a layer",
            agent().model_layer(MapResponseLayer::new(redact)),
        ),
        ("a service", agent().model_layer(RedactLayer)),
    ];
    for (rung, builder) in rungs {
        let response = builder.build()?.run("What is the password?").await?;
        println!("{rung}: {}", response.text());
    }
    Ok(())
}
