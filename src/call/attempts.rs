//! The ledger of a call: the attempts at it that have reached a target.
//!
//! An attempt is known where it meets ours, and meets it more than once: inside a fallback that is
//! the model of an agent, an answer passes the handle of the model that gave it, perhaps a band of
//! callbacks, and the boundary of the agent's model. The innermost of these has the entry. Its
//! response is marked, and what failed inside it is known to those outside by their entries.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::context::RunContext;
use crate::error::ErrorKind;
use crate::lock::lock;
use crate::message::{Metadata, Usage};
use crate::stream::{NextAttempt, Unfinished};

/// The attempts at a call that have reached a model or a tool: for a callback or a layer that
/// charges, or reports, what a call has used. Clones belong to the same call.
///
/// Repeats and fallbacks inside are attempts of the call, whether they are layers or part of what
/// the agent has for its model. A response from a cache or a callback is none.
///
/// ```
/// use tower_agent::call::{AttemptEnd, Attempts};
/// use tower_agent::callback::{Action, Callback, Outcome};
/// use tower_agent::{Agent, ModelRequest, ModelResponse, Request, Result, Usage};
/// use tower_agent_test::{ScriptedModel, Turn};
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
    pub(super) page: Option<Arc<Page>>,
    pub(super) place: AttemptPlace,
    /// Nobody is known to pay yet: the run of the request counts nothing.
    pub(super) is_detached: bool,
}

/// The place of a request on its way to the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AttemptPlace {
    /// In no agent: what is followed here is taken for the target.
    #[default]
    Alone,
    /// In the stack of an agent, which has its target inside.
    InStack,
    /// Inside the target, where every response counts that is not marked.
    AtTarget,
}

/// One attempt at a call that has reached its target: an entry of the ledger.
///
/// Its call is that of the request whose attempts are followed, with the
/// [path](crate::RunContext::call_path) that the context of the request has.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Attempted {
    /// The kind of its end.
    pub end: AttemptEnd,
    /// The answer of a part of the stack to its end: it has repeated the call, or called another
    /// model. `None` if nothing followed, or something ran beside it.
    pub next: Option<NextAttempt>,
    /// The tokens that the target has told: at the end, or in a stream that did not end. Zero if it
    /// has told none, or more than [there are](Usage::known).
    pub usage: Usage,
    /// The length of what a stream without an end had brought, in bytes: of the text, the reasoning
    /// and the arguments.
    pub text_len: usize,
    /// The metadata of the response, from the provider.
    pub metadata: Metadata,
    pub(super) request: Description,
}

/// The words of a request [about itself](super::Request::describe_attempt): a value that it shares.
pub type Description = Option<Arc<dyn Any + Send + Sync>>;

impl Attempted {
    /// Returns the description that the request gives [of
    /// itself](super::Request::describe_attempt) when it reaches the target: of a model call its
    /// [`Settings`](crate::Settings). `None` if it is no `T`.
    #[must_use]
    pub fn request<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.request.as_deref()?.downcast_ref()
    }

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

/// The end of an attempt, which says what is known of its effect.
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
pub(super) struct Page {
    entries: Mutex<LedgerEntries>,
    /// A call inside has waited for one of others.
    is_deferred: AtomicBool,
    outer: Option<Arc<Self>>,
    /// The entry of the attempt that the page is inside of.
    own: Option<Arc<LedgerEntry>>,
}

/// Most calls are one attempt, which needs no list.
#[derive(Clone, Debug, Default)]
struct LedgerEntries {
    first: Option<Arc<LedgerEntry>>,
    more: Vec<Arc<LedgerEntry>>,
}

impl LedgerEntries {
    fn push(&mut self, entry: Arc<LedgerEntry>) {
        match &self.first {
            None => self.first = Some(entry),
            Some(_) => self.more.push(entry),
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<LedgerEntry>> {
        self.first.iter().chain(&self.more)
    }
}

/// `None` if it was no attempt, or several, which have entries of their own.
type LedgerEntry = Mutex<Option<Attempted>>;

impl Attempts {
    /// Creates those of a call that an agent makes of its own target.
    pub(crate) const fn in_stack() -> Self {
        Self {
            page: None,
            place: AttemptPlace::InStack,
            is_detached: false,
        }
    }

    /// Follows the call from here on: what this returns has the attempts of everything inside.
    ///
    /// Meant for a `before`, or a layer before it passes the request on.
    #[must_use]
    pub fn follow(&mut self) -> Self {
        self.page = Some(Page::inside(self.page.take()));
        self.clone()
    }

    /// Follows a call that several may share, and that one of them pays for: from here on its
    /// attempts are nobody's, until they are [charged](Self::charge_to) to somebody.
    #[must_use]
    pub fn detach(&mut self) -> Self {
        self.page = Some(Page::inside(None));
        self.is_detached = true;
        self.clone()
    }

    /// Says that the call waits for another one, which may be [detached](Self::detach): it is no
    /// attempt by itself, whatever becomes of it.
    pub fn defer(&self) {
        if let Some(page) = &self.page {
            page.is_deferred.store(true, Ordering::Release);
        }
    }

    /// Makes the attempts of a [detached](Self::detach) call those of another one, and of the run
    /// that this is made in.
    pub fn charge_to(&self, other: &Self, context: &RunContext) {
        let Some(page) = &self.page else {
            return;
        };
        let entries = lock(&page.entries).clone();
        for entry in entries.iter() {
            let Some(usage) = lock(entry).as_ref().map(|attempted| attempted.usage) else {
                continue;
            };
            if let Some(other) = &other.page {
                other.push(entry);
            }
            if !other.is_detached {
                context.add_usage(usage);
            }
        }
    }

    /// Returns the attempts so far, in the order in which they began. One that runs is
    /// [cut](AttemptEnd::Cut).
    #[must_use]
    pub fn list(&self) -> Vec<Attempted> {
        let mut attempts = Vec::new();
        self.for_each(|attempt| attempts.push(attempt.clone()));
        attempts
    }

    /// Calls a function with each of the attempts so far, as [`list`](Self::list) returns them,
    /// without copies. It must not look at the attempts of the call itself.
    pub fn for_each(&self, mut read: impl FnMut(&Attempted)) {
        let Some(page) = &self.page else {
            return;
        };
        for entry in lock(&page.entries).iter() {
            if let Some(attempted) = &*lock(entry) {
                read(attempted);
            }
        }
    }
}

impl Page {
    fn inside(outer: Option<Arc<Self>>) -> Arc<Self> {
        Arc::new(Self {
            outer,
            ..Self::default()
        })
    }

    /// Begins an attempt at the call of this page. Returns the page of what is inside it.
    pub(super) fn begin(self: Arc<Self>, request: Description) -> Arc<Self> {
        let own = self.add(Attempted {
            request,
            ..Attempted::default()
        });
        Arc::new(Self {
            own: Some(own),
            outer: Some(self),
            ..Self::default()
        })
    }

    fn add(&self, attempted: Attempted) -> Arc<LedgerEntry> {
        let entry = Arc::new(Mutex::new(Some(attempted)));
        self.push(&entry);
        entry
    }

    fn push(&self, entry: &Arc<LedgerEntry>) {
        for page in std::iter::successors(Some(self), |page| page.outer.as_deref()) {
            lock(&page.entries).push(entry.clone());
        }
    }

    /// Notes what follows the attempt that began last.
    pub(super) fn note_next(&self, next: NextAttempt) {
        let entries = lock(&self.entries);
        let latest = entries.iter().filter(|entry| lock(entry).is_some());
        if let Some(entry) = latest.last()
            && let Some(attempted) = &mut *lock(entry)
        {
            attempted.next = Some(next);
        }
    }

    /// Returns whether no attempt is known to be inside.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.entries).first.is_none() && !self.is_deferred.load(Ordering::Acquire)
    }

    /// Ends the attempt around the page. Each of the `received` streams without an end is one.
    pub(super) fn end(
        &self,
        answered: Option<(Usage, Option<&Metadata>)>,
        failed: Option<AttemptEnd>,
        received: &[Unfinished],
    ) {
        let Some(own) = &self.own else { return };
        for (index, unfinished) in received.iter().enumerate() {
            // The error is that of the last.
            let is_last = index + 1 == received.len();
            self.add(Attempted {
                end: failed.filter(|_| is_last).unwrap_or_default(),
                usage: unfinished.usage,
                text_len: unfinished.text_len,
                request: lock(own).as_ref().and_then(|own| own.request.clone()),
                ..Attempted::default()
            });
        }
        let is_empty = self.is_empty();
        let mut own = lock(own);
        match (&mut *own, answered, failed) {
            (Some(attempted), Some((usage, metadata)), _) => {
                attempted.end = AttemptEnd::Answered;
                attempted.usage = usage;
                attempted.metadata = metadata.cloned().unwrap_or_default();
            }
            (Some(attempted), None, Some(end)) if is_empty => attempted.end = end,
            // Of what is inside, or of a cache or a callback there.
            _ => *own = None,
        }
    }
}
