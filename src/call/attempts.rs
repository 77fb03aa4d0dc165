//! The ledger of a call: the attempts at it that have reached a target.
//!
//! An attempt is known where it meets ours, and meets it more than once: inside a fallback that is
//! the model of an agent, an answer passes the handle of the model that gave it, perhaps a band of
//! callbacks, and the boundary of the agent's model. The innermost of these has the entry. Its
//! response is marked, and what failed inside it is known to those outside by their entries.

use std::sync::{Arc, Mutex};

use super::request::Request;
use crate::context::RunContext;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::message::{Metadata, Usage};
use crate::model::Settings;
use crate::stream::{Received, Unfinished};

/// The attempts at a call that have reached a model or a tool: for a callback or a layer that
/// charges, or reports, what a call has used. Clones belong to the same call.
///
/// Repeats and fallbacks inside are attempts of the call, whether they are layers or part of what
/// the agent has for its model. A response from a cache or a callback is none.
///
/// ```
/// use tower_agent::call::{AttemptEnd, Attempts};
/// use tower_agent::callback::{Action, Callback, Outcome};
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::{Agent, ModelRequest, ModelResponse, Request, Result, Usage};
///
/// struct Report;
///
/// impl Callback<ModelRequest> for Report {
///     async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
///         let attempts = request.attempts().map(Attempts::follow);
///         request.extensions_mut().insert(attempts);
///         Ok(Action::Continue)
///     }
///
///     fn on_end(&self, request: &ModelRequest, _: Outcome<'_, ModelResponse>) {
///         let attempts = request.extensions().get::<Option<Attempts>>();
///         for attempt in attempts.into_iter().flatten().flat_map(Attempts::list) {
///             assert_eq!(attempt.end, AttemptEnd::Answered);
///             assert_eq!(attempt.usage, Usage::new(10, 2));
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let model = ScriptedModel::new([Turn::from_text("Oslo").usage(Usage::new(10, 2))]);
/// let agent = Agent::builder(model).on_model(Report).build()?;
/// agent.run("The capital of Norway?").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    page: Option<Arc<Page>>,
    /// The call is inside the model or the tool of an agent, where every response counts that is
    /// not marked.
    is_at_target: bool,
}

/// One attempt at a call that has reached its target.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attempted {
    /// How it has ended.
    pub end: AttemptEnd,
    /// The tokens that the target has told: at the end, or in a stream that did not end.
    pub usage: Usage,
    /// The length of what a stream without an end had brought, in bytes: of the text, the reasoning
    /// and the arguments.
    pub text_len: usize,
    /// The settings that a model was asked with.
    pub settings: Option<Arc<Settings>>,
    /// What the provider says of its response.
    pub metadata: Metadata,
}

impl Attempted {
    /// Returns what had been received, if the attempt is a stream without an end.
    #[must_use]
    pub fn unfinished(&self) -> Option<Unfinished> {
        let received = Unfinished {
            usage: self.usage,
            text_len: self.text_len,
        };
        (self.end != AttemptEnd::Answered && received != Unfinished::default()).then_some(received)
    }
}

/// How an attempt has ended, and so what is known of its effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptEnd {
    /// It was dropped, cancelled or stopped by a time limit, or has not ended: its target may have
    /// had its effect, and may charge for it.
    #[default]
    Cut,
    /// The target has answered: it had its effect. A callback or a layer may have refused the
    /// response, or replaced it.
    Answered,
    /// The target has failed: of its effect nothing is known but what the error says.
    Failed(ErrorKind),
}

/// The entries of one call, which are entries of the calls around it as well.
#[derive(Debug, Default)]
struct Page {
    entries: Mutex<Vec<Arc<Entry>>>,
    outer: Option<Arc<Self>>,
}

#[derive(Debug, Default)]
struct Entry(Mutex<EntryState>);

#[derive(Debug, Default)]
struct EntryState {
    attempted: Attempted,
    /// What was taken for an attempt was several, which have entries of their own, or none.
    is_void: bool,
}

impl Attempts {
    /// Follows the call from here on: what this returns has the attempts of everything inside.
    ///
    /// Meant for a `before`, or a layer before it passes the request on.
    #[must_use]
    pub fn follow(&mut self) -> Self {
        self.page = Some(Page::inside(self.page.take()));
        self.clone()
    }

    /// Returns the attempts so far, in the order in which they began. One that runs is
    /// [cut](AttemptEnd::Cut).
    #[must_use]
    pub fn list(&self) -> Vec<Attempted> {
        let Some(page) = &self.page else {
            return Vec::new();
        };
        let entries = lock(&page.entries);
        let attempts = entries.iter().filter_map(|entry| {
            let state = lock(&entry.0);
            (!state.is_void).then(|| state.attempted.clone())
        });
        attempts.collect()
    }
}

impl Page {
    fn inside(outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            entries: Mutex::default(),
            outer,
        })
    }

    /// Adds an entry here and in the pages around this one.
    fn add(&self, attempted: Attempted) -> Arc<Entry> {
        let state = EntryState {
            attempted,
            is_void: false,
        };
        let entry = Arc::new(Entry(Mutex::new(state)));
        for page in std::iter::successors(Some(self), |page| page.outer.as_deref()) {
            lock(&page.entries).push(entry.clone());
        }
        entry
    }
}

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
/// # drop(shorter::<tower_agent::model::BoxModel>);
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
    /// What was received of attempts without an end.
    received: Option<Received>,
    /// Boxed: most calls are followed by nobody.
    opened: Option<Box<Opened>>,
}

#[derive(Debug)]
struct Opened {
    entry: Arc<Entry>,
    /// Where the entries of what is inside are.
    inside: Arc<Page>,
    settings: Option<Arc<Settings>>,
}

impl OpenAttempt {
    /// Begins an attempt. `is_target` says that this is the model or the tool of an agent. Returns
    /// `None` if nobody counts it.
    #[inline]
    pub(crate) fn begin<R: Request>(request: &mut R, is_target: bool) -> Option<Self> {
        let mut is_at_target = is_target;
        let mut is_followed = false;
        if let Some(attempts) = request.attempts() {
            attempts.is_at_target |= is_target;
            is_at_target = attempts.is_at_target;
            is_followed = attempts.page.is_some();
        }
        if !is_at_target && !is_followed {
            return None;
        }
        Some(Self {
            is_at_target,
            received: request.delta_sender().map(|sender| sender.received()),
            opened: if is_followed { open(request) } else { None },
        })
    }

    /// Ends the attempt.
    #[inline]
    pub(crate) fn end<R: Request>(
        self,
        context: &RunContext,
        result: Result<&mut R::Response, &Error>,
    ) {
        let received = self.count_received(context);
        let has_entries_inside = self.opened.as_ref().is_some_and(|open| open.has_entries());
        let mut answered = None;
        let mut failed = None;
        match result {
            // Outside the agent's model, what has entries inside is theirs, also if a layer has made
            // the response anew, without the mark.
            Ok(_) if !self.is_at_target && has_entries_inside => {}
            Ok(response) => {
                if R::count(response) {
                    let usage = R::usage(response);
                    if self.is_at_target {
                        context.add_usage(usage);
                    }
                    answered = Some((usage, R::metadata(response)));
                }
            }
            Err(error) => failed = Some(error.kind()),
        }
        if let Some(opened) = self.opened {
            opened.end(answered, failed.map(ended), &received);
        }
    }

    /// Ends an attempt that was dropped. What runs inside must have been dropped before.
    #[cold]
    pub(crate) fn cut(self, context: &RunContext) {
        let received = self.count_received(context);
        if let Some(opened) = self.opened {
            opened.end(None, Some(AttemptEnd::Cut), &received);
        }
    }

    /// Counts what was received of attempts without an end, and returns it.
    #[inline]
    fn count_received(&self, context: &RunContext) -> Vec<Unfinished> {
        let received = self.received.as_ref().map(Received::take);
        let received = received.unwrap_or_default();
        for unfinished in &received {
            context.add_usage(unfinished.usage);
        }
        received
    }
}

// Apart, so that the usual case stays small at each call site.
#[cold]
fn open<R: Request>(request: &mut R) -> Option<Box<Opened>> {
    let settings = request.model_settings().cloned();
    let attempts = request.attempts()?;
    let page = attempts.page.take()?;
    let entry = page.add(Attempted {
        settings: settings.clone(),
        ..Attempted::default()
    });
    let inside = Page::inside(Some(page));
    attempts.page = Some(inside.clone());
    Some(Box::new(Opened {
        entry,
        inside,
        settings,
    }))
}

impl Opened {
    fn has_entries(&self) -> bool {
        !lock(&self.inside.entries).is_empty()
    }

    /// Ends the entry. `received` are streams without an end, each of which is an attempt.
    fn end(
        &self,
        answered: Option<(Usage, Option<&Metadata>)>,
        failed: Option<AttemptEnd>,
        received: &[Unfinished],
    ) {
        for (index, unfinished) in received.iter().enumerate() {
            // The error is that of the last.
            let is_last = index + 1 == received.len();
            self.inside.add(Attempted {
                end: failed.filter(|_| is_last).unwrap_or_default(),
                usage: unfinished.usage,
                text_len: unfinished.text_len,
                settings: self.settings.clone(),
                metadata: Metadata::default(),
            });
        }
        let has_entries = self.has_entries();
        let mut state = lock(&self.entry.0);
        match (answered, failed) {
            (Some((usage, metadata)), _) => {
                state.attempted.end = AttemptEnd::Answered;
                state.attempted.usage = usage;
                state.attempted.metadata = metadata.cloned().unwrap_or_default();
            }
            (None, Some(end)) if !has_entries => state.attempted.end = end,
            // Of what is inside, or of a cache or a callback there.
            (None, _) => state.is_void = true,
        }
    }
}

fn ended(error: ErrorKind) -> AttemptEnd {
    match error {
        ErrorKind::Timeout | ErrorKind::Cancelled => AttemptEnd::Cut,
        kind => AttemptEnd::Failed(kind),
    }
}
