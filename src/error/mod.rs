//! The one error of every call.

mod convert;
mod interrupt;
mod kind;
mod model_message;

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::convert::below;
pub use self::interrupt::{Interrupt, Resolution, ResolutionOutcome};
pub use self::kind::ErrorKind;

use crate::call::CallKind;
use crate::context::Checkpoint;
use crate::message::Metadata;

/// An error of any type, as tower's own layers return it.
pub type BoxError = tower::BoxError;

/// A result whose error is [`Error`] unless said otherwise.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed, or why a run must end.
///
/// It is cheap to clone, says what happened, to which call and what to do, and keeps its type
/// through tower's boxed errors: [`Error::from`] a [`BoxError`] finds it again anywhere in the
/// source chain.
///
/// Three errors end more than the call they are returned from, and nothing outside can undo them:
/// [`abort`](Error::abort), [`interrupt`](Error::interrupt) and
/// [`end_invocation`](Error::end_invocation).
///
/// ```
/// use tower_agent::{BoxError, Error, ErrorKind};
///
/// let boxed: BoxError = Error::abort("out of budget").into();
/// let error = Error::from(boxed);
/// assert_eq!(error.kind(), ErrorKind::Aborted);
/// assert!(!error.is_retryable());
/// ```
///
/// In a hook `?` takes the usual errors of the standard library as they are, and any other once it
/// is boxed: `load().map_err(BoxError::from)?`.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    cause: Option<Cause>,
    retryable: Option<bool>,
    retry_after: Option<Duration>,
    metadata: Metadata,
    call: Option<CallSite>,
    raised_by: Option<RaisedBy>,
    interrupts: Option<Arc<[Interrupt]>>,
    /// What the model reads in the place of kind and message.
    model_message: Option<Cow<'static, str>>,
    checkpoint: Option<Arc<Checkpoint>>,
}

#[derive(Clone, Debug)]
enum Cause {
    /// `message` says more than the error below it.
    Below(Arc<dyn StdError + Send + Sync>),
    /// `message` is that error's own: it stands in for it, so the chain does not say it twice.
    Same(Arc<dyn StdError + Send + Sync>),
}

/// The call that failed: which kind, what it called, and the agent it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSite {
    /// Which call.
    pub kind: CallKind,
    /// The tool's name, for a tool call.
    pub name: Option<Arc<str>>,
    /// The agent's path in its tree, outermost first, joined by `/`. Empty outside an agent.
    pub agent: Arc<str>,
}

/// The callback, and the hook of it, that raised an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RaisedBy {
    /// The callback's [`name`](crate::Callback::name), or the wrap's.
    pub callback: Cow<'static, str>,
    /// The hook: `before`, `after`, `on_error` or `wrap`.
    pub hook: &'static str,
}

impl Error {
    /// An error of `kind` with a message that says what happened.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            cause: None,
            retryable: None,
            retry_after: None,
            metadata: Metadata::default(),
            call: None,
            raised_by: None,
            interrupts: None,
            model_message: None,
            checkpoint: None,
        }))
    }

    /// Ends the whole run, the tree of agents included, with this reason.
    ///
    /// No retry, fallback, `on_error` or `after` outside can undo it.
    #[must_use]
    pub fn abort(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Aborted, reason)
    }

    /// Ends the agent `Ok`, as interrupted, with what it waits for.
    ///
    /// The agent's own `after` is not asked. Calls beside it in the same turn still finish and may add what they wait for; then nothing
    /// more starts. A later run [resumes](crate::AgentRequest::resume) where this one stopped.
    #[must_use]
    pub fn interrupt(interrupts: Interrupt) -> Self {
        Self::interrupt_all([interrupts])
    }

    /// Ends the agent `Ok`, as interrupted, with everything it waits for: an
    /// [`interrupt`](Self::interrupt) with several causes.
    ///
    /// ```
    /// use tower_agent::{Error, Interrupt};
    ///
    /// let waits = ["wipe the disk", "wipe the tape"].map(|id| Interrupt::new(id, "confirmation"));
    /// let error = Error::interrupt_all(waits);
    /// assert_eq!(error.interrupts().len(), 2);
    /// assert_eq!(error.message(), "waiting for confirmation, confirmation");
    /// ```
    #[must_use]
    pub fn interrupt_all(interrupts: impl IntoIterator<Item = Interrupt>) -> Self {
        let interrupts: Arc<[Interrupt]> = interrupts.into_iter().collect();
        let reasons: Vec<_> = interrupts.iter().map(|interrupts| &*interrupts.reason).collect();
        let message = format!("waiting for {}", reasons.join(", "));
        Self::new(ErrorKind::Interrupted, message).update(|e| e.interrupts = Some(interrupts))
    }

    /// Ends this agent `Ok` with what it has; its `after` is not called.
    #[must_use]
    pub fn end_invocation() -> Self {
        Self::new(ErrorKind::Ended, "a callback ended the invocation")
    }

    /// What happened, to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What happened, in words, without the call and the advice that `Display` adds.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Whether the same call may succeed if it is made again.
    ///
    /// Decided by the kind, unless whoever made the error knew better.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retryable.unwrap_or_else(|| self.0.kind.is_retryable())
    }

    /// Whether this is an abort, an interrupt or an end of the invocation: an ending of more than
    /// the call, which no `on_error` sees.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Aborted | ErrorKind::Interrupted | ErrorKind::Ended)
    }

    /// How long the server asked to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// What the provider said of its answer: status, request id, rate limits.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The call that failed.
    #[must_use]
    pub fn call(&self) -> Option<&CallSite> {
        self.0.call.as_ref()
    }

    /// The callback that raised it, if one did.
    #[must_use]
    pub fn raised_by(&self) -> Option<&RaisedBy> {
        self.0.raised_by.as_ref()
    }

    /// What an interrupt waits for; empty for any other error.
    #[must_use]
    pub fn interrupts(&self) -> &[Interrupt] {
        self.0.interrupts.as_deref().unwrap_or_default()
    }

    /// What the run that failed has done, to [go on](crate::AgentRequest::resume) from: the
    /// conversation with every answer that a tool has given.
    ///
    /// An [`Agent`](crate::Agent)'s error has it. A layer around the agent that makes an error of
    /// its own, such as a timeout, loses it; [`RunStream::checkpoint`](crate::RunStream::checkpoint)
    /// does not. Neither `Display` nor `Debug` shows it.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use tower_agent::testing::{ScriptedModel, Turn};
    /// use tower_agent::{Agent, AgentRequest, Error, ErrorKind, Tool};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let model = ScriptedModel::new([
    ///     Turn::tool("pay", json!({})),
    ///     Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
    ///     Turn::from_text("Paid."),
    /// ]);
    /// let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    /// let agent = Agent::builder(model).tool(pay).build()?;
    ///
    /// let error = agent.run("Pay the bill.").await.unwrap_err();
    /// let Some(checkpoint) = error.checkpoint() else { panic!("a run has failed") };
    /// let response = agent.run(AgentRequest::resume(checkpoint.clone())).await?;
    /// assert_eq!((response.text(), response.new_messages().len()), ("Paid.".into(), 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.0.checkpoint.as_deref()
    }

    /// The first error of type `T` among the causes.
    ///
    /// ```
    /// use tower_agent::Error;
    ///
    /// let error = Error::from("x".parse::<u8>().unwrap_err());
    /// assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());
    /// ```
    #[must_use]
    pub fn downcast_ref<T: StdError + 'static>(&self) -> Option<&T> {
        let (Cause::Below(first) | Cause::Same(first)) = self.0.cause.as_ref()?;
        let mut link: Option<&(dyn StdError + 'static)> = Some(&**first);
        while let Some(current) = link {
            if let Some(found) = current.downcast_ref() {
                return Some(found);
            }
            link = below(current);
        }
        None
    }

    /// The same error, told in other words.
    ///
    /// ```
    /// use tower_agent::{Error, ErrorKind};
    ///
    /// let busy = Error::new(ErrorKind::Overloaded, "busy");
    /// let told = busy.clone().with_message(format!("{}, as always", busy.message()));
    /// assert_eq!((told.kind(), told.message()), (ErrorKind::Overloaded, "busy, as always"));
    /// ```
    #[must_use]
    pub fn with_message(self, message: impl Into<Cow<'static, str>>) -> Self {
        self.update(|e| {
            e.message = message.into();
            if let Some(Cause::Same(cause)) =
                e.cause.take_if(|cause| matches!(cause, Cause::Same(_)))
            {
                e.cause = Some(Cause::Below(cause));
            }
        })
    }

    /// The same error with the call that failed.
    #[must_use]
    pub fn with_call(self, call: CallSite) -> Self {
        self.update(|e| e.call = Some(call))
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        let source: BoxError = source.into();
        self.update(|e| e.cause = Some(Cause::Below(Arc::from(source))))
    }

    /// Stands in for another error: the same words, with a kind.
    pub(crate) fn standing_for(kind: ErrorKind, error: impl Into<BoxError>) -> Self {
        let error: BoxError = error.into();
        Self::new(kind, error.to_string()).update(|e| e.cause = Some(Cause::Same(Arc::from(error))))
    }

    /// The same error, saying whether a second attempt may succeed.
    #[must_use]
    pub fn with_retryable(self, retryable: bool) -> Self {
        self.update(|e| e.retryable = Some(retryable))
    }

    /// The same error with the wait that the server asked for.
    #[must_use]
    pub fn with_retry_after(self, after: Duration) -> Self {
        self.update(|e| e.retry_after = Some(after))
    }

    /// The same error with what the provider said of its answer.
    #[must_use]
    pub fn with_metadata(self, metadata: Metadata) -> Self {
        self.update(|e| e.metadata = metadata)
    }

    /// The same error of a run, with what that has done.
    pub(crate) fn with_checkpoint(self, checkpoint: Checkpoint) -> Self {
        self.update(|e| e.checkpoint = Some(Arc::new(checkpoint)))
    }

    /// The same error, to be shown to a reader.
    pub(crate) fn without_checkpoint(self) -> Self {
        match self.0.checkpoint {
            Some(_) => self.update(|e| e.checkpoint = None),
            None => self,
        }
    }

    /// Names the call, unless an inner call did already.
    pub(crate) fn in_call(self, site: impl FnOnce() -> CallSite) -> Self {
        if self.0.call.is_some() {
            return self;
        }
        self.update(|e| e.call = Some(site()))
    }

    /// Says where an error of no particular kind came from.
    pub(crate) fn or_kind(self, kind: ErrorKind) -> Self {
        if self.0.kind != ErrorKind::Other {
            return self;
        }
        self.update(|e| e.kind = kind)
    }

    /// Names the callback and the hook, unless an inner callback did already.
    pub(crate) fn by(
        self,
        callback: impl FnOnce() -> Cow<'static, str>,
        hook: &'static str,
    ) -> Self {
        self.or_kind(ErrorKind::Callback).update(|e| {
            e.raised_by.get_or_insert_with(|| RaisedBy { callback: callback(), hook });
        })
    }

    fn update(mut self, change: impl FnOnce(&mut Inner)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, message, call, raised_by, metadata, retry_after, .. } = &*self.0;
        if let Some(call) = call {
            write!(f, "{call}: ")?;
        }
        write!(f, "{kind}: {message}")?;
        if let Some(raised_by) = raised_by {
            write!(f, " (raised by {})", raised_by)?;
        }
        match (metadata.status(), metadata.request_id()) {
            (Some(status), Some(id)) => write!(f, " (status {status}, request {id})")?,
            (Some(status), None) => write!(f, " (status {status})")?,
            (None, Some(id)) => write!(f, " (request {id})")?,
            (None, None) => {}
        }
        if let Some(after) = retry_after {
            write!(f, "; retry after {} s", after.as_secs_f64())?;
        }
        match kind.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CallSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} call", self.kind)?;
        if let Some(name) = &self.name {
            write!(f, " `{name}`")?;
        }
        if !self.agent.is_empty() {
            write!(f, " of agent `{}`", self.agent)?;
        }
        Ok(())
    }
}

impl fmt::Display for RaisedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in {}", self.callback, self.hook)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, message, cause, call, raised_by, metadata, .. } = &*self.0;
        f.debug_struct("Error")
            .field("kind", kind)
            .field("message", message)
            .field("call", call)
            .field("raised_by", raised_by)
            .field("metadata", metadata)
            .field("cause", cause)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.0.cause.as_ref()? {
            Cause::Below(error) => Some(&**error),
            Cause::Same(error) => error.source(),
        }
    }
}
