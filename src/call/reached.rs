//! An attempt at a call, where it meets ours: what it has used is counted, and noted by those who
//! follow the call.

use std::sync::Arc;

use super::attempts::{AttemptEnd, AttemptPlace, Page};
use super::request::Request;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::message::Usage;
use crate::stream::{Received, Unfinished};

/// An attempt at a call, for a layer that makes several of them: from before the call of the inner
/// service until its result. If it is dropped before [`end`](Self::end), the attempt was cut.
///
/// What is inside may be ours, and has its own entries then. So it does no harm to note an attempt
/// more than once.
///
/// ```
/// use tower::{Service, ServiceExt};
/// use tower_agent::call::Reached;
/// use tower_agent::model::ModelService;
/// use tower_agent::{BoxError, ModelRequest, ModelResponse};
///
/// /// Asks twice, and takes the shorter answer.
/// async fn shorter(
///     model: impl ModelService,
///     request: ModelRequest,
/// ) -> Result<ModelResponse, BoxError> {
///     let mut answers = Vec::new();
///     for _ in 0..2 {
///         let mut request = request.clone();
///         let mut reached = Reached::begin(&mut request);
///         let result = model.clone().oneshot(request).await.map_err(Into::into);
///         let mut result = result.map_err(tower_agent::Error::from);
///         reached.end::<ModelRequest>(&mut result);
///         answers.push(result?);
///     }
///     let shortest = answers.into_iter().min_by_key(|answer| answer.text().len());
///     shortest.ok_or_else(|| "two answers".into())
/// }
/// # drop(shorter(tower_agent::model::BoxModel::new(tower_agent_test::ScriptedModel::new([])), ModelRequest::default()));
/// ```
#[derive(Debug)]
#[must_use = "an attempt that is dropped was cut"]
pub struct Reached(Option<Box<(RunContext, OpenAttempt)>>);

impl Reached {
    /// Begins an attempt. Pass on the same request, so that what is inside knows of it.
    pub fn begin<R: Request>(request: &mut R) -> Self {
        let attempt = OpenAttempt::begin(request, false);
        Self(attempt.map(|attempt| Box::new((request.context().clone(), attempt))))
    }

    /// Ends the attempt with its result. Marks a response as counted.
    pub fn end<R: Request>(&mut self, result: &mut Result<R::Response>) {
        if let Some(reached) = self.0.take() {
            let (context, attempt) = *reached;
            attempt.end::<R>(&context, result.as_mut().map_err(|error| &*error));
        }
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        if let Some(reached) = self.0.take() {
            let (context, attempt) = *reached;
            attempt.cut(&context);
        }
    }
}

/// An attempt that crosses one boundary.
#[derive(Debug)]
pub(crate) struct OpenAttempt {
    /// Every response counts that is not marked.
    is_at_target: bool,
    /// The run counts what is used.
    is_charged: bool,
    /// The output that was received of attempts without an end.
    received: Option<Received>,
    /// The page for entries of what is inside. Most calls are followed by nobody.
    inside: Option<Arc<Page>>,
}

impl OpenAttempt {
    /// Begins an attempt, perhaps at the target of an agent. `None` if nobody counts it.
    #[inline]
    pub(crate) fn begin<R: Request>(request: &mut R, is_target: bool) -> Option<Self> {
        let mut is_at_target = is_target;
        let mut is_followed = false;
        let mut is_charged = true;
        if let Some(attempts) = request.attempts() {
            if is_target {
                attempts.place = AttemptPlace::AtTarget;
            }
            is_at_target = attempts.place == AttemptPlace::AtTarget;
            is_followed = attempts.page.is_some();
            is_charged = !attempts.is_detached;
            // What is here may not reach the target, whose boundary has the entry.
            if attempts.place == AttemptPlace::InStack {
                return None;
            }
        }
        if !is_at_target && !is_followed {
            return None;
        }
        Some(Self {
            is_at_target,
            is_charged,
            received: request.delta_sender().map(|sender| sender.received()),
            inside: if is_followed { open(request) } else { None },
        })
    }

    #[inline]
    pub(crate) fn end<R: Request>(
        self,
        context: &RunContext,
        result: Result<&mut R::Response, &Error>,
    ) {
        let received = self.count_received(context);
        let has_entries_inside = self.inside.as_ref().is_some_and(|page| !page.is_empty());
        let mut answered = None;
        let mut failed = None;
        match result {
            // Outside of agents, what has entries inside is theirs, also if a layer has made the
            // response anew, without the mark.
            Ok(_) if !self.is_at_target && has_entries_inside => {}
            Ok(response) => {
                if R::count(response) {
                    let usage = known(context, R::usage(response));
                    if let Some(usage) = usage
                        && self.is_at_target
                        && self.is_charged
                    {
                        context.add_usage(usage);
                    }
                    answered = Some((usage.unwrap_or_default(), R::metadata(response)));
                }
            }
            Err(error) => failed = Some(error.kind()),
        }
        if let Some(inside) = self.inside {
            inside.end(answered, failed.map(ended), &received);
        }
    }

    /// Ends an attempt that was dropped. What runs inside must have been dropped before.
    #[cold]
    pub(crate) fn cut(self, context: &RunContext) {
        let received = self.count_received(context);
        if let Some(inside) = self.inside {
            inside.end(None, Some(AttemptEnd::Cut), &received);
        }
    }

    #[inline]
    fn count_received(&self, context: &RunContext) -> Vec<Unfinished> {
        let received = self.received.as_ref().map(Received::take);
        let received = received.unwrap_or_default();
        if self.is_charged {
            for unfinished in &received {
                context.add_usage(unfinished.usage);
            }
        }
        received
    }
}

// Apart, so that the usual case stays small at each call site.
#[cold]
fn open<R: Request>(request: &mut R) -> Option<Arc<Page>> {
    let about = request.describe_attempt();
    let attempts = request.attempts()?;
    let inside = attempts.page.take()?.begin(about);
    attempts.page = Some(inside.clone());
    Some(inside)
}

/// Returns the usage that a provider has stated; none if it stated none, or more than can be.
fn known(context: &RunContext, stated: Usage) -> Option<Usage> {
    let known = stated.known();
    if known.is_none() && stated.total() > 0 {
        tracing::warn!(
            run_id = context.run_id(),
            agent = context.path(),
            ?stated,
            most = Usage::MOST,
            "a provider stated more tokens than an answer can have used; its usage is not known"
        );
    }
    known
}

fn ended(error: ErrorKind) -> AttemptEnd {
    match error {
        ErrorKind::Timeout | ErrorKind::Cancelled => AttemptEnd::Cut,
        kind => AttemptEnd::Failed(kind),
    }
}
