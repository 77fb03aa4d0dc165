//! Guardrails: checks before, beside or after a model call.
//!
//! ```text
//! Guardrail: Layer<S>    where S: Service<ModelRequest, Response = ModelResponse>
//! check:     async fn(ModelRequest) -> Verdict or Result<Verdict, E>
//! ```
//!
//! | | the model is called | until the verdict |
//! |---|---|---|
//! | [`before`](Guardrail::before) | after the check has passed | nothing else happens |
//! | [`beside`](Guardrail::beside) | in parallel with the check | no delta is emitted and no tool runs; if the check trips, the call is dropped |
//! | [`after`](Guardrail::after) | before the check | no delta is emitted and no tool runs |
//!
//! ```
//! use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Verdict};
//! use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
//!
//! async fn on_topic(request: ModelRequest) -> Verdict {
//!     let is_poem = request.messages().iter().any(|message| message.text().contains("poem"));
//!     if is_poem { Verdict::trip("no poems here") } else { Verdict::Pass }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = tower::service_fn(|_: ModelRequest| async {
//! #     Ok::<_, BoxError>(ModelResponse::from_text("Roses are red."))
//! # });
//! let guardrail = Guardrail::beside(on_topic).with_on_trip(OnTrip::answer("I only do sums."));
//! let agent = Agent::builder(model).model_layer(guardrail).build()?;
//!
//! assert_eq!(agent.run("Write a poem.").await?.text(), "I only do sums.");
//! # Ok(())
//! # }
//! ```
//!
//! # It fails closed
//!
//! A check that fails, panics or [times out](Guardrail::with_timeout) trips. An abort, an interrupt
//! or an end of the invocation that a check returns keeps its meaning, so a check may interrupt the
//! run to ask a person. The verdict is always awaited and takes precedence, even if the model call
//! fails.
//!
//! # Where to register it
//!
//! Registered on an agent, a guardrail checks every model call of that agent, including those after
//! tool calls. To check those of its sub-agents and of agents used as tools too, register it with
//! [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks). To check only the first, look
//! at [`iteration`](tower_agent::RunContext::iteration). Layers and callbacks inside it see the
//! request and the response before the verdict. A retry outside runs the check again; one inside
//! does not. During the check the call keeps its place in a concurrency limit: a check that calls a
//! model behind the same limit may deadlock, so give it a limit of its own.

mod gate;
mod verdict;

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use tower_layer::Layer;

pub use self::verdict::{IntoVerdict, OnTrip, Tripped, Verdict};

use self::gate::Gate;
use self::verdict::Seal;
use crate::flow::{Label, label_answer};
use tower_agent::call::{CallService, Origin, Request};
use tower_agent::callback::{Next, WrapService, wrap_model};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::model::{ModelRequest, ModelResponse};
use tower_agent::stream::{Delta, map_fn};

/// Checks model calls. Cloning is cheap.
///
/// See the [module](self).
#[derive(Clone)]
#[must_use = "a guardrail does nothing until it is layered"]
pub struct Guardrail {
    check: Check,
    name: Cow<'static, str>,
    timeout: Option<Duration>,
    on_trip: OnTrip,
}

type Checking = BoxFuture<'static, Result<Verdict>>;

type CheckRequest = dyn Fn(ModelRequest) -> Checking + Send + Sync;

type CheckResponse = dyn Fn(ModelRequest, ModelResponse) -> Checking + Send + Sync;

#[derive(Clone)]
enum Check {
    Before(Arc<CheckRequest>),
    Beside(Arc<CheckRequest>),
    After(Arc<CheckResponse>),
}

impl Guardrail {
    /// Creates a guardrail that checks the request, and calls the model only if the check passes.
    ///
    /// The check can be anything: a function, a call of another model, a run of another agent. It
    /// receives the request without its sink, so nothing it does is streamed to the consumer.
    pub fn before<F, O>(check: F) -> Self
    where
        F: Fn(ModelRequest) -> O + Send + Sync + 'static,
        O: Future<Output: IntoVerdict> + Send + 'static,
    {
        Self::new(Check::Before(Arc::new(move |request| {
            checking(check(request))
        })))
    }

    /// Creates a guardrail that checks the request while the model responds, so that a check that
    /// passes adds no latency. If it trips, the model call is dropped; the provider may have done
    /// part of the work.
    pub fn beside<F, O>(check: F) -> Self
    where
        F: Fn(ModelRequest) -> O + Send + Sync + 'static,
        O: Future<Output: IntoVerdict> + Send + 'static,
    {
        Self::new(Check::Beside(Arc::new(move |request| {
            checking(check(request))
        })))
    }

    /// Creates a guardrail that checks the response. The deltas of a streamed response are held
    /// back until the check passes; the run then emits the whole response. A
    /// [`channel`](tower_agent::stream::channel) that you set yourself receives no deltas.
    ///
    /// ```
    /// use tower_agent_middleware::guardrail::{Guardrail, Verdict};
    /// use tower_agent::model::FinishReason;
    ///
    /// let complete = Guardrail::after(|_, response| async move {
    ///     match response.finish_reason() {
    ///         FinishReason::Length => Verdict::trip("the answer was cut off"),
    ///         _ => Verdict::Pass,
    ///     }
    /// });
    /// # drop(complete);
    /// ```
    pub fn after<F, O>(check: F) -> Self
    where
        F: Fn(ModelRequest, ModelResponse) -> O + Send + Sync + 'static,
        O: Future<Output: IntoVerdict> + Send + 'static,
    {
        Self::new(Check::After(Arc::new(move |request, response| {
            checking(check(request, response))
        })))
    }

    fn new(check: Check) -> Self {
        Self {
            check,
            name: "guardrail".into(),
            timeout: None,
            on_trip: OnTrip::Fail,
        }
    }

    /// Sets the name, used in errors.
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the time limit of the check; a check that takes longer trips. By default there is none.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets what happens when it trips. Defaults to [`OnTrip::Fail`].
    pub fn with_on_trip(mut self, on_trip: OnTrip) -> Self {
        self.on_trip = on_trip;
        self
    }

    /// Returns the name used in errors.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the time limit of the check.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Returns what happens when it trips.
    #[must_use]
    pub fn on_trip(&self) -> &OnTrip {
        &self.on_trip
    }

    /// Calls the model if the check of the request passes.
    #[expect(
        clippy::manual_async_fn,
        reason = "an async fn would store its arguments twice"
    )]
    fn call_after_check(
        self: Arc<Self>,
        check: Arc<CheckRequest>,
        request: ModelRequest,
        mut next: Next<ModelRequest>,
    ) -> impl Future<Output = Result<ModelResponse>> {
        async move {
            match self.tripped(|| check(without_sink(&request))).await {
                None => next.run(request).await,
                Some(trip) => trip.map(|answer| in_place_of(None, answer, &request)),
            }
        }
    }

    /// Calls the model while the request is checked.
    fn call_beside_check(
        self: Arc<Self>,
        check: Arc<CheckRequest>,
        mut request: ModelRequest,
        mut next: Next<ModelRequest>,
    ) -> impl Future<Output = Result<ModelResponse>> {
        let original = without_sink(&request);
        let (key, gate) = Gate::new();
        // In a band of its own, so that the gate is behind the mappers inside, and before those
        // outside.
        request.enter_band();
        request.map_deltas(move || gate.clone());
        async move {
            let mut call = pin!(next.run(request));
            let mut answer = None;
            let mut verdict = pin!(self.tripped(|| check(original.clone())));
            // Polls the check first: if both are ready, nothing is emitted.
            let trip = poll_fn(|cx| {
                if let Poll::Ready(trip) = verdict.as_mut().poll(cx) {
                    return Poll::Ready(trip);
                }
                if answer.is_none()
                    && let Poll::Ready(result) = call.as_mut().poll(cx)
                {
                    // An ending does not wait for the verdict: it holds for the whole run.
                    if let Err(ending) = &result
                        && ending.is_ending()
                    {
                        return Poll::Ready(Some(Err(ending.clone())));
                    }
                    answer = Some(result);
                }
                Poll::Pending
            });
            if let Some(trip) = trip.await {
                return trip.map(|answer| in_place_of(None, answer, &original));
            }
            key.open();
            match answer {
                Some(result) => result,
                None => call.await,
            }
        }
    }

    /// Calls the model, and checks its response.
    fn call_before_check(
        self: Arc<Self>,
        check: Arc<CheckResponse>,
        mut request: ModelRequest,
        mut next: Next<ModelRequest>,
    ) -> impl Future<Output = Result<ModelResponse>> {
        let original = without_sink(&request);
        // The response is emitted as a whole once it has passed.
        request.enter_band();
        request.map_deltas(|| map_fn(|_| None::<Delta>));
        async move {
            let response = next.run(request).await?;
            let verdict = self.tripped(|| check(original.clone(), response.clone()));
            match verdict.await {
                None => Ok(response),
                Some(trip) => trip.map(|answer| in_place_of(Some(&response), answer, &original)),
            }
        }
    }

    /// Runs a check. If it trips, returns the result of the call.
    async fn tripped<F>(&self, check: F) -> Option<Result<ModelResponse>>
    where
        F: FnOnce() -> Checking + Send,
    {
        // Inside the future, so that a panic of the function itself is caught as well. The check
        // owns what it uses, so nothing is seen half changed after a panic.
        let check = AssertUnwindSafe(async move { check().await }).catch_unwind();
        let verdict = match self.timeout {
            None => Ok(check.await),
            Some(limit) => {
                let verdict = tokio::time::timeout(limit, check).await;
                verdict.map_err(|_| limit)
            }
        };
        let (kind, reason) = match verdict {
            Ok(Ok(Ok(Verdict::Pass))) => return None,
            Ok(Ok(Ok(Verdict::Trip(reason)))) => (ErrorKind::Denied, reason),
            // A check may end the run itself, for reasons of its own.
            Ok(Ok(Err(error))) if error.is_ending() => return Some(Err(error)),
            Ok(Ok(Err(error))) => {
                let reason = format!("the check failed: {error}");
                (ErrorKind::Callback, reason.into())
            }
            Ok(Err(_)) => (ErrorKind::Callback, "the check panicked".into()),
            Err(limit) => {
                let reason = format!("the check timed out after {limit:?}");
                (ErrorKind::Callback, reason.into())
            }
        };
        let tripped = Tripped {
            guardrail: self.name.clone(),
            reason,
        };
        let message = tripped.to_string();
        Some(match &self.on_trip {
            OnTrip::Fail => Err(Error::new(kind, message).with_source(tripped)),
            OnTrip::Abort => Err(Error::abort(message).with_source(tripped)),
            OnTrip::Answer(response) => Ok(*response.clone()),
        })
    }
}

/// Returns a request for a check. A check that kept the sink would keep the stream open.
fn without_sink(request: &ModelRequest) -> ModelRequest {
    request.clone().with_delta_sender(None)
}

/// Returns the response of a guardrail that has tripped. It keeps the model's usage, since budgets
/// read it from the response.
fn in_place_of(
    replaced: Option<&ModelResponse>,
    mut answer: ModelResponse,
    request: &ModelRequest,
) -> ModelResponse {
    let origin = if replaced.is_some() {
        Origin::After
    } else {
        Origin::Before
    };
    // The tool calls of the blocked response must not run.
    if answer.message().tool_calls().next().is_none() {
        answer = answer.without_tool_calls();
    }
    request.mark(&mut answer, replaced, origin);
    // The program's own words.
    label_answer(request, &answer, Label::trusted());
    match replaced {
        Some(replaced) => answer
            .with_usage(replaced.usage())
            .with_metadata(replaced.metadata().clone()),
        None => answer,
    }
}

fn checking(check: impl Future<Output: IntoVerdict> + Send + 'static) -> Checking {
    Box::pin(async move { check.await.into_verdict(Seal) })
}

impl<S: CallService<ModelRequest>> Layer<S> for Guardrail {
    type Service = WrapService<ModelRequest>;

    fn layer(&self, inner: S) -> Self::Service {
        let guardrail = Arc::new(self.clone());
        let wrap = match self.check.clone() {
            Check::Before(check) => wrap_model(move |request, next| {
                guardrail
                    .clone()
                    .call_after_check(check.clone(), request, next)
            }),
            Check::Beside(check) => wrap_model(move |request, next| {
                guardrail
                    .clone()
                    .call_beside_check(check.clone(), request, next)
            }),
            Check::After(check) => wrap_model(move |request, next| {
                guardrail
                    .clone()
                    .call_before_check(check.clone(), request, next)
            }),
        };
        wrap.named(self.name.clone()).layer(inner)
    }
}

impl fmt::Debug for Guardrail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = match self.check {
            Check::Before(_) => "before",
            Check::Beside(_) => "beside",
            Check::After(_) => "after",
        };
        f.debug_struct("Guardrail")
            .field("name", &self.name)
            .field("when", &when)
            .field("timeout", &self.timeout)
            .field("on_trip", &self.on_trip)
            .finish_non_exhaustive()
    }
}
