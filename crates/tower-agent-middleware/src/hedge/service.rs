use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::Service;
use tower::util::{Oneshot, ServiceExt};

use super::plan::HedgePlan;
use super::race::Race;
use crate::no_answer;
use crate::ours::ours;
use tower_agent::call::Request;
use tower_agent::call::{Reached, admit};
use tower_agent::error::{BoxError, CallSite, Error, Result};
use tower_agent::model::{ModelRequest, ModelResponse, ServerToolKind};

/// A service that starts a second attempt at a slow model call; created by
/// [`HedgeLayer`](super::HedgeLayer). Clones share the times that they observe.
///
/// Needs a `tokio` runtime with time enabled.
#[derive(Clone, Debug)]
pub struct Hedge<S> {
    inner: S,
    plan: HedgePlan,
}

impl<S> Hedge<S> {
    pub(super) fn new(inner: S, plan: HedgePlan) -> Self {
        Self { inner, plan }
    }
}

impl<S> Service<ModelRequest> for Hedge<S>
where
    S: Service<ModelRequest, Response = ModelResponse, Error: Into<BoxError>> + Clone,
{
    type Response = ModelResponse;
    type Error = Error;
    type Future = ResponseFuture<S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner.poll_ready(cx).map_err(ours)
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        self.plan.budget.deposit();
        let race = Arc::<Race>::default();
        let may_hedge = is_repeatable(&request) && (self.plan.may_hedge)(&request);
        let begun = Instant::now();
        let due = may_hedge.then(|| begun + self.plan.delay.next());
        let site = CallSite::of(&request);
        let mut sent = race.enter(request.clone(), FIRST);
        let reached = Reached::begin(&mut sent);
        let first = self.inner.call(sent);
        ResponseFuture {
            first: Some(first),
            second: None,
            sleep: None,
            progress: HedgeProgress {
                second: Some((self.inner.clone(), request)),
                due,
                plan: self.plan.clone(),
                race,
                reached: [Some(reached), None],
                site,
                begun: [Some(begun), None],
                running: 1,
                rejects_no_answer: false,
                failed: None,
            },
        }
    }
}

/// Returns whether a second call of the model does no harm.
fn is_repeatable(request: &ModelRequest) -> bool {
    let settings = request.settings();
    let mut tools = settings.server_tools.iter();
    // A kind that is newer than this crate may do anything.
    let only_read = tools.all(|tool| {
        matches!(
            tool.kind,
            ServerToolKind::WebSearch | ServerToolKind::WebFetch
        )
    });
    // The tools of a provider can also be given as fields of its own, and nobody knows what they
    // do.
    let mut extra = settings.extra.keys();
    only_read && !extra.any(|field| field.contains("tool") || field.contains("mcp"))
}

pin_project! {
    /// The future of a [`Hedge`].
    pub struct ResponseFuture<S>
    where
        S: Service<ModelRequest>,
    {
        #[pin]
        first: Option<S::Future>,
        // Boxed, since few calls have one, and all would be larger by it.
        second: Option<Pin<Box<Oneshot<S, ModelRequest>>>>,
        #[pin]
        sleep: Option<Sleep>,
        progress: HedgeProgress<S>,
    }

    impl<S> PinnedDrop for ResponseFuture<S>
    where
        S: Service<ModelRequest>,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            // Each with what its own stream had brought.
            this.first.set(None);
            this.progress.reached[0] = None;
            *this.second = None;
            this.progress.reached[1] = None;
        }
    }
}

/// The progress of a call and of its attempts.
struct HedgeProgress<S> {
    /// The service and the request of the second attempt, until it starts.
    second: Option<(S, ModelRequest)>,
    /// The time of the next attempt, if there is no output before.
    due: Option<Instant>,
    plan: HedgePlan,
    race: Arc<Race>,
    /// The attempts that run.
    reached: [Option<Reached>; 2],
    site: CallSite,
    /// The times at which attempts have begun that have no output so far.
    begun: [Option<Instant>; 2],
    running: u32,
    /// The agent of the call does not accept a response that is no answer.
    rejects_no_answer: bool,
    /// The result of an attempt that failed while the other went on, or gave no answer.
    failed: Option<Result<ModelResponse>>,
}

/// The numbers of the attempts.
const FIRST: u8 = 1;
const SECOND: u8 = 2;

impl<S> Future for ResponseFuture<S>
where
    S: Service<ModelRequest, Response = ModelResponse, Error: Into<BoxError>> + Clone,
{
    type Output = Result<ModelResponse>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let progress = this.progress;
        if let Some(first) = this.first.as_mut().as_pin_mut() {
            let polled = first.poll(cx);
            progress.look(FIRST);
            if let Poll::Ready(result) = polled {
                this.first.set(None);
                let result = result.map_err(ours);
                if let Some(result) = progress.end(FIRST, result) {
                    *this.second = None;
                    return Poll::Ready(progress.close(result));
                }
            } else if progress.race.winner() == Some(FIRST) {
                // From here on it is the only one.
                progress.due = None;
                this.sleep.set(None);
                if this.second.is_some() {
                    *this.second = None;
                    progress.lose(SECOND);
                }
            }
        }
        // A call that is answered at once needs no timer.
        if let Some(due) = progress.due.take() {
            this.sleep.set(Some(sleep_until(due)));
        }
        if let Some(sleep) = this.sleep.as_mut().as_pin_mut()
            && sleep.poll(cx).is_ready()
        {
            this.sleep.set(None);
            *this.second = progress.begin_second().map(Box::pin);
        }
        if let Some(second) = this.second {
            let polled = second.as_mut().poll(cx);
            progress.look(SECOND);
            if let Poll::Ready(result) = polled {
                *this.second = None;
                let result = result.map_err(ours);
                if let Some(result) = progress.end(SECOND, result) {
                    this.first.set(None);
                    return Poll::Ready(progress.close(result));
                }
            } else if progress.race.winner() == Some(SECOND) && this.first.is_some() {
                this.first.set(None);
                progress.lose(FIRST);
            }
        }
        Poll::Pending
    }
}

impl<S: Service<ModelRequest> + Clone> HedgeProgress<S> {
    fn begin_second(&mut self) -> Option<Oneshot<S, ModelRequest>> {
        let (service, request) = self.second.take()?;
        // The run drops the first attempt as well.
        admit(&request).ok()?;
        if !self.plan.budget.withdraw() {
            return None;
        }
        let run_id = request.context().run_id();
        tracing::debug!(run_id, call = %self.site, "second attempt started");
        self.begun[1] = Some(Instant::now());
        self.running += 1;
        // Asked here: a call without a second attempt has one answer, whatever it is.
        self.rejects_no_answer = no_answer::is_rejected(&request);
        let mut sent = self.race.enter(request, SECOND);
        self.reached[1] = Some(Reached::begin(&mut sent));
        Some(service.oneshot(sent))
    }
}

impl<S> HedgeProgress<S> {
    /// Notes the first output of an attempt.
    fn look(&mut self, attempt: u8) {
        if self.race.winner() == Some(attempt) {
            self.observe(attempt);
        }
    }

    fn observe(&mut self, attempt: u8) {
        if let Some(begun) = self.begun[usize::from(attempt - 1)].take() {
            self.plan.delay.observe(begun.elapsed());
        }
    }

    /// Ends an attempt, and returns the result of the call if it is decided.
    fn end(&mut self, attempt: u8, result: Result<ModelResponse>) -> Option<Result<ModelResponse>> {
        self.running -= 1;
        let mut result = result;
        if let Some(mut reached) = self.reached[usize::from(attempt - 1)].take() {
            reached.end::<ModelRequest>(&mut result);
        }
        let error = match result {
            Ok(response) if self.may_be_better(&response) => {
                self.begun[usize::from(attempt - 1)] = None;
                self.failed = Some(Ok(response));
                return None;
            }
            Ok(response) => {
                self.observe(attempt);
                return Some(Ok(response));
            }
            Err(error) => error,
        };
        // The time of a failure says nothing about that of an answer.
        self.begun[usize::from(attempt - 1)] = None;
        // An ending holds for the whole run. Behind its output, an attempt is the call.
        if error.is_ending() || self.race.winner() == Some(attempt) {
            return Some(Err(error));
        }
        if self.running > 0 {
            self.failed = Some(Err(error));
            return None;
        }
        Some(match self.failed.take() {
            None => Err(error),
            // The agent follows its own rule for it.
            Some(Ok(no_answer)) => Ok(no_answer),
            Some(Err(other)) => {
                let message = format!(
                    "{} (both attempts failed; the other: {})",
                    error.message(),
                    other.message()
                );
                Err(error.with_message(message))
            }
        })
    }

    /// Returns whether the attempt that still runs may answer, and this response is no answer.
    fn may_be_better(&self, response: &ModelResponse) -> bool {
        self.running > 0 && self.rejects_no_answer && response.no_answer().is_some()
    }

    /// Notes that an attempt was dropped because the other has output.
    fn lose(&mut self, attempt: u8) {
        tracing::debug!(call = %self.site, attempt, "attempt dropped: the other has output");
        self.observe(attempt);
        self.running -= 1;
        self.reached[usize::from(attempt - 1)] = None;
    }

    /// Ends the call, after its attempts.
    fn close(&mut self, result: Result<ModelResponse>) -> Result<ModelResponse> {
        // The other one, if it was running.
        self.observe(FIRST);
        self.observe(SECOND);
        self.reached = [None, None];
        result
    }
}

impl<S: Service<ModelRequest>> fmt::Debug for ResponseFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("race", &self.progress.race)
            .finish_non_exhaustive()
    }
}
