use std::any::{Any, type_name};
use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;
use tower::util::{Oneshot, ServiceExt};

use super::request::ModelRequest;
use super::response::ModelResponse;
use super::service::{BoxModel, ModelService};
use crate::call::{BoxCallFuture, Request};
use crate::error::{CallSite, Error, ErrorKind, Result, When};
use crate::type_name::without_paths;

/// The public path of this module, which log filters name.
const TARGET: &str = "tower_agent::middleware::fallback";

/// Calls models in order until one responds.
///
/// The service is ready when the first model is; the readiness of each other model is awaited
/// before it is called.
#[derive(Clone)]
pub struct Fallback {
    first: BoxModel,
    plan: Arc<Plan>,
}

#[derive(Clone, Debug)]
struct Plan {
    others: Vec<BoxModel>,
    when: When,
    restart_streams: bool,
    /// The names of all models.
    names: Vec<ModelName>,
}

/// The name of a model for people, which is that of its type.
#[derive(Clone, Debug)]
pub(crate) enum ModelName {
    One(String),
    /// Those of the models of a fallback.
    Fallback(Vec<Self>),
}

impl ModelName {
    pub(crate) fn of<S: ModelService>(model: &S) -> Self {
        match (model as &dyn Any).downcast_ref::<Fallback>() {
            Some(fallback) => Self::Fallback(fallback.plan.names.clone()),
            None => Self::One(without_paths(type_name::<S>())),
        }
    }
}

impl Fallback {
    /// Creates a fallback whose first model is `model`.
    #[must_use]
    pub fn new(model: impl ModelService) -> Self {
        let when = When::new(|error| {
            let kind = error.kind();
            error.is_retryable() || kind.is_retryable() || kind == ErrorKind::ContextLength
        });
        let names = vec![ModelName::of(&model)];
        let plan = Plan {
            others: Vec::new(),
            when,
            restart_streams: false,
            names,
        };
        Self {
            first: BoxModel::catching_panics(model),
            plan: Arc::new(plan),
        }
    }

    /// Adds a model to call if all models before it have failed.
    #[must_use]
    pub fn or(self, model: impl ModelService) -> Self {
        self.or_each([model])
    }

    /// Adds several models, to call in order if all models before them have failed.
    #[must_use]
    pub fn or_each(mut self, models: impl IntoIterator<Item = impl ModelService>) -> Self {
        let plan = self.plan();
        for model in models {
            plan.names.push(ModelName::of(&model));
            plan.others.push(BoxModel::catching_panics(model));
        }
        self
    }

    /// Sets the errors after which the next model is called. `predicate` is never called for an
    /// abort, an interrupt or an end of the invocation.
    #[must_use]
    pub fn fall_back_if(
        mut self,
        predicate: impl Fn(&Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.plan().when = When::new(predicate);
        self
    }

    /// Sets whether to fall back after output was streamed; the stream then emits
    /// [`AttemptDiscarded`](crate::stream::EventKind::AttemptDiscarded). Defaults to `false`.
    #[must_use]
    pub fn restart_streams(mut self, restart: bool) -> Self {
        self.plan().restart_streams = restart;
        self
    }

    fn plan(&mut self) -> &mut Plan {
        Arc::make_mut(&mut self.plan)
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fallback")
            .field("first", &self.first)
            .field("plan", &self.plan)
            .finish()
    }
}

impl Service<ModelRequest> for Fallback {
    type Response = ModelResponse;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.first.poll_ready(cx)
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        let future = self.first.call(request.clone());
        let asked = Asked {
            request,
            plan: self.plan.clone(),
            errors: Vec::new(),
        };
        ResponseFuture {
            state: State::First { future },
            asked,
        }
    }
}

pin_project! {
    /// The future of a [`Fallback`].
    pub struct ResponseFuture {
        #[pin]
        state: State,
        asked: Asked,
    }
}

pin_project! {
    #[project = Projected]
    enum State {
        First { #[pin] future: BoxCallFuture<ModelRequest> },
        Other { #[pin] future: Oneshot<BoxModel, ModelRequest> },
    }
}

impl Future for ResponseFuture {
    type Output = Result<ModelResponse>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let result = match this.state.as_mut().project() {
                Projected::First { future } => ready!(future.poll(cx)),
                Projected::Other { future } => ready!(future.poll(cx)),
            };
            match result {
                Ok(response) => return Poll::Ready(Ok(response)),
                Err(error) => match this.asked.next(error) {
                    Ok(future) => this.state.set(State::Other { future }),
                    Err(error) => return Poll::Ready(Err(error)),
                },
            }
        }
    }
}

/// The progress of one call through the models.
struct Asked {
    request: ModelRequest,
    plan: Arc<Plan>,
    errors: Vec<Error>,
}

impl Asked {
    /// Returns the call of the next model, or the error for the caller.
    fn next(&mut self, error: Error) -> Result<Oneshot<BoxModel, ModelRequest>> {
        let Plan {
            others,
            when,
            restart_streams,
            ..
        } = &*self.plan;
        if error.is_ending() || self.request.context().aborted().is_some() {
            return Err(error);
        }
        let is_over = !when.holds(&error)?;
        let is_seen = self.request.is_committed() && !restart_streams;
        let next = others.get(self.errors.len()).filter(|_| !is_over);
        let Some(model) = next else {
            return Err(self.failed(error, ""));
        };
        if is_seen {
            let why = "; not falling back: output was already streamed";
            return Err(self.failed(error, why));
        }
        self.errors.push(error.clone());
        let (call, asked, of) = (
            CallSite::of(&self.request),
            self.errors.len(),
            others.len() + 1,
        );
        let kind = error.kind();
        // Not the error itself: an outer layer may redact its text.
        tracing::warn!(target: TARGET, %call, asked, of, %kind, "falling back to next model");
        Ok(model.clone().oneshot(for_another(&self.request)))
    }

    /// Returns the error for the caller when the last model called has failed with `error`.
    fn failed(&mut self, error: Error, why: &str) -> Error {
        if self.errors.is_empty() {
            return match why {
                "" => error,
                why => error
                    .clone()
                    .with_message(format!("{}{why}", error.message())),
            };
        }
        let mut errors = std::mem::take(&mut self.errors);
        errors.push(error.clone());
        let told = |(index, error): (usize, &Error)| {
            format!("{}. {}: {}", index + 1, error.kind(), error.message())
        };
        let told: Vec<_> = errors.iter().enumerate().map(told).collect();
        let failed = ModelsFailed { errors };
        let retryable = failed.errors.iter().any(Error::is_retryable);
        error
            .with_message(format!("{failed}: {}{why}", told.join("; ")))
            .with_retryable(retryable)
            .with_source(failed)
    }
}

/// Returns the request without the settings meant for the first model.
fn for_another(request: &ModelRequest) -> ModelRequest {
    let mut request = request.clone();
    let settings = request.settings();
    if settings.model.is_some() || !settings.extra.is_empty() {
        let settings = request.settings_mut();
        settings.model = None;
        settings.extra.clear();
    }
    request
}

/// The errors of all models: the source of the error of a [`Fallback`] that called several.
#[derive(Clone, Debug)]
pub struct ModelsFailed {
    errors: Vec<Error>,
}

impl ModelsFailed {
    /// Returns one error for each model called, in order.
    #[must_use]
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }
}

impl fmt::Display for ModelsFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} models failed", self.errors.len())
    }
}

impl StdError for ModelsFailed {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.errors
            .last()
            .map(|error| error as &(dyn StdError + 'static))
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
