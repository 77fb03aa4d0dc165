use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower::Service;
use tower::util::{Oneshot, ServiceExt};

use tower_agent::call::{BoxCallFuture, Request, admit, tell_failure};
use tower_agent::error::{CallSite, Error, ErrorKind, Result};
use tower_agent::model::{BoxModel, ModelRequest, ModelResponse, ModelService};
use tower_agent::stream::NextAttempt;

use crate::no_answer;
use crate::predicate::ErrorPredicate;

/// Calls models in order until one responds.
///
/// The service is ready when the first model is; the readiness of each other model is awaited
/// before it is called.
#[derive(Clone)]
pub struct Fallback {
    first: BoxModel,
    plan: Arc<FallbackPlan>,
}

#[derive(Clone, Debug)]
struct FallbackPlan {
    others: Vec<BoxModel>,
    falls_back: ErrorPredicate,
    restart_streams: bool,
}

impl Fallback {
    /// Creates a fallback whose first model is `model`.
    #[must_use]
    pub fn new(model: impl ModelService) -> Self {
        let falls_back = ErrorPredicate::new(|error| {
            let kind = error.kind();
            let is_of_model = matches!(kind, ErrorKind::ContextLength | ErrorKind::InvalidAnswer);
            error.is_retryable() || kind.is_retryable() || is_of_model
        });
        let plan = FallbackPlan {
            others: Vec::new(),
            falls_back,
            restart_streams: false,
        };
        Self {
            // A panic of one model is an error like any other: the next model may still answer.
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
            plan.others.push(BoxModel::catching_panics(model));
        }
        self
    }

    /// Sets the errors after which the next model is called. `predicate` is never called for an
    /// abort, an interrupt or an end of the invocation. A response that is no answer, where the
    /// agent does not accept one, is an error of kind [`InvalidAnswer`](ErrorKind::InvalidAnswer)
    /// to it.
    #[must_use]
    pub fn fall_back_if(
        mut self,
        predicate: impl Fn(&Error) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.plan().falls_back = ErrorPredicate::new(predicate);
        self
    }

    /// Sets whether to fall back after output was streamed; the stream then emits
    /// [`AttemptDiscarded`](tower_agent::stream::EventKind::AttemptDiscarded). Defaults to `false`.
    #[must_use]
    pub fn restart_streams(mut self, restart: bool) -> Self {
        self.plan().restart_streams = restart;
        self
    }

    fn plan(&mut self) -> &mut FallbackPlan {
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
        // The one that was polled ready. The others become ready when they are called.
        let future = self.first.call(request.clone());
        ResponseFuture {
            state: FallbackState::First { future },
            progress: FallbackProgress {
                request,
                plan: self.plan.clone(),
                errors: Vec::new(),
            },
        }
    }
}

pin_project! {
    /// The future of a [`Fallback`].
    pub struct ResponseFuture {
        #[pin]
        state: FallbackState,
        progress: FallbackProgress,
    }
}

pin_project! {
    #[project = Projected]
    enum FallbackState {
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
            let next = match result {
                Ok(response) => match this.progress.rejected(&response) {
                    None => return Poll::Ready(Ok(response)),
                    Some(error) => this.progress.next(error),
                },
                Err(error) => this.progress.next(error),
            };
            match next {
                Ok(future) => this.state.set(FallbackState::Other { future }),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

/// The progress of one call through the models.
struct FallbackProgress {
    request: ModelRequest,
    plan: Arc<FallbackPlan>,
    errors: Vec<Error>,
}

impl FallbackProgress {
    /// Returns the error that stands for a response which is no answer, if the agent does not
    /// accept one and another model may answer.
    fn rejected(&self, response: &ModelResponse) -> Option<Error> {
        let is_last = self.errors.len() == self.plan.others.len();
        let is_shown = self.request.is_committed() && !self.plan.restart_streams;
        if is_last || is_shown {
            return None;
        }
        let error = no_answer::rejection(&self.request, response)?;
        // A predicate that panics fails the call.
        let accepts = matches!(self.plan.falls_back.holds(&error), Ok(false));
        (!accepts).then_some(error)
    }

    /// Returns the call of the next model, or the error for the caller.
    fn next(&mut self, error: Error) -> Result<Oneshot<BoxModel, ModelRequest>> {
        // An ending holds for the whole run: another model must not undo it. It is never shown to
        // the predicate either, which could select it by mistake.
        if error.is_ending() {
            return Err(error);
        }
        admit(&self.request)?;
        if !self.plan.falls_back.holds(&error)? {
            return Err(self.failed(error, ""));
        }
        let plan = self.plan.clone();
        let Some(model) = plan.others.get(self.errors.len()) else {
            return Err(self.failed(error, ""));
        };
        // The consumer has read the beginning of one model's answer; the next model would begin
        // another.
        if self.request.is_committed() && !plan.restart_streams {
            let reason = "; not falling back: output was already streamed";
            return Err(self.failed(error, reason));
        }
        let kind = error.kind();
        self.errors.push(error);
        let call = CallSite::of(&self.request);
        let called = self.errors.len();
        let of = plan.others.len() + 1;
        // Not the error itself: an outer layer may redact its text.
        let run_id = self.request.context().run_id();
        tracing::warn!(run_id, %call, asked = called, of, %kind, "falling back to next model");
        tell_failure(&self.request, kind, NextAttempt::Fallback);
        Ok(model.clone().oneshot(for_another(&self.request)))
    }

    /// Returns the error for the caller when the last model called has failed with `error`.
    fn failed(&mut self, error: Error, reason: &str) -> Error {
        if self.errors.is_empty() {
            // Only one model was called: its error is the caller's, unchanged where nothing
            // needs explaining.
            if reason.is_empty() {
                return error;
            }
            let message = format!("{}{reason}", error.message());
            return error.with_message(message);
        }
        let mut errors = std::mem::take(&mut self.errors);
        errors.push(error.clone());
        let mut list = Vec::with_capacity(errors.len());
        for (index, error) in errors.iter().enumerate() {
            list.push(format!(
                "{}. {}: {}",
                index + 1,
                error.kind(),
                error.message()
            ));
        }
        // A retry outside calls all models again, so one that may recover is enough.
        let retryable = errors.iter().any(Error::is_retryable);
        let failed = ModelsFailed { errors };
        error
            .with_message(format!("{failed}: {}{reason}", list.join("; ")))
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
