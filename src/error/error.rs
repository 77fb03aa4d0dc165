use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::call_site::CallSite;
use super::kind::ErrorKind;
use super::raised_by::RaisedBy;
use crate::conversation::{Checkpoint, Interrupt};
use crate::metadata::Metadata;

/// An error of any type, as tower's layers return it.
pub type BoxError = tower::BoxError;

/// A result whose error defaults to [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of a failed call, or of a run that must end.
///
/// It is cheap to clone and says what happened, to which call, and what to do. It survives boxing
/// by tower's layers: converting a [`BoxError`] with [`Error::from`] finds it anywhere in the
/// source chain.
///
/// Some errors end more than the call that returned them, and nothing outside can undo them:
/// [`abort`](Error::abort), [`interrupt`](Error::interrupt),
/// [`end_invocation`](Error::end_invocation), and that of a run whose
/// [token](crate::AgentRequest::with_cancellation) was cancelled.
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
/// It serialises as data: without its source, its checkpoint and the kind of a call that is defined
/// outside this crate.
///
/// In a hook, `?` converts common errors of the standard library directly, and any other error once
/// it is boxed: `load().map_err(BoxError::from)?`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Error(pub(super) Arc<ErrorFields>);

/// The fields of an error, and its stored form. Behind one pointer: a `Result` on the path of calls
/// stays small.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ErrorFields {
    kind: ErrorKind,
    message: Cow<'static, str>,
    #[serde(skip)]
    cause: Option<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<Duration>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: Metadata,
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "CallSite::read"
    )]
    call: Option<CallSite>,
    #[serde(skip_serializing_if = "Option::is_none")]
    raised_by: Option<RaisedBy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interrupts: Option<Arc<[Interrupt]>>,
    /// The error is that of a run whose token was cancelled, while it is in that run.
    #[serde(skip)]
    is_end_of_run: bool,
    /// The text for the model, instead of kind and message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model_message: Option<Cow<'static, str>>,
    #[serde(skip)]
    pub(super) checkpoint: Option<Arc<Checkpoint>>,
}

#[derive(Clone, Debug)]
enum Cause {
    /// `message` adds to the source's message.
    Below(Arc<dyn StdError + Send + Sync>),
    /// `message` is the source's own; the chain leaves the source out so as not to repeat it.
    Same(Arc<dyn StdError + Send + Sync>),
}

impl Error {
    /// Creates an error with a message that says what happened.
    #[must_use]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(ErrorFields {
            kind,
            message: message.into(),
            ..ErrorFields::default()
        }))
    }

    /// Creates an error of `kind` that replaces another, with the other's message.
    ///
    /// Its [`source`](StdError::source) is the cause of the other;
    /// [`downcast_ref`](Self::downcast_ref) finds the other itself.
    ///
    /// ```
    /// use tower_agent::{Error, ErrorKind};
    ///
    /// let invalid = "x".parse::<u8>().unwrap_err();
    /// let error = Error::from_source(ErrorKind::InvalidArguments, invalid);
    /// assert_eq!(error.message(), "invalid digit found in string");
    /// assert!(error.downcast_ref::<std::num::ParseIntError>().is_some());
    /// ```
    #[must_use]
    pub fn from_source(kind: ErrorKind, error: impl Into<BoxError>) -> Self {
        let error: BoxError = error.into();
        Self::new(kind, error.to_string()).update(|e| e.cause = Some(Cause::Same(Arc::from(error))))
    }

    /// Creates an error that ends the whole run, including the whole tree of agents.
    ///
    /// No retry, fallback, `on_error` or `after` outside can undo it.
    #[must_use]
    pub fn abort(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Aborted, reason)
    }

    /// Creates an error that interrupts the run: the agent returns `Ok` with this interrupt, and
    /// its `after` is not called.
    ///
    /// Parallel calls of the same turn finish and may add interrupts of their own; then nothing
    /// more starts. A later run [resumes](crate::AgentRequest::resume) where this one stopped.
    #[must_use]
    pub fn interrupt(interrupt: Interrupt) -> Self {
        Self::interrupt_all([interrupt])
    }

    /// Creates an [`interrupt`](Self::interrupt) error with several interrupts.
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
        // Every interrupt passes here, so that none has the id of another content.
        let interrupts = interrupts.into_iter().map(Interrupt::identified);
        let interrupts: Arc<[Interrupt]> = interrupts.collect();
        let reasons: Vec<_> = interrupts
            .iter()
            .map(|interrupt| &*interrupt.reason)
            .collect();
        let message = format!("waiting for {}", reasons.join(", "));
        Self::new(ErrorKind::Interrupted, message).update(|e| e.interrupts = Some(interrupts))
    }

    /// Creates an error that ends this agent: it returns `Ok` with the transcript so far, and its
    /// `after` is not called.
    #[must_use]
    pub fn end_invocation() -> Self {
        Self::new(
            ErrorKind::InvocationEnded,
            "a callback ended the invocation",
        )
    }

    pub(crate) fn run_cancelled() -> Self {
        Self::new(ErrorKind::Cancelled, "the run's token was cancelled")
            .update(|e| e.is_end_of_run = true)
    }

    pub(crate) fn lease_over() -> Self {
        let message = "the run's lease is over: another run may have its conversation, so this one \
                       starts no more calls";
        Self::new(ErrorKind::Conflict, message).update(|e| e.is_end_of_run = true)
    }

    /// Returns the error for the caller of the run, whose own run it does not end.
    pub(crate) fn outside_run(self) -> Self {
        if !self.0.is_end_of_run {
            return self;
        }
        self.update(|e| e.is_end_of_run = false)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the message, without the call and the advice that `Display` adds.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns whether retrying the same call may succeed.
    ///
    /// The kind decides, unless [`with_retryable`](Self::with_retryable) was used.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0
            .retryable
            .unwrap_or_else(|| self.0.kind.is_retryable())
    }

    /// Returns whether this is an abort, an interrupt, an end of the invocation, or says inside a
    /// run that the run was cancelled. These end more than the call, and no `on_error` sees them.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ends_run() || self.ends_with_response()
    }

    /// Returns whether this ends the whole run, which fails with it.
    pub(crate) fn ends_run(&self) -> bool {
        self.0.kind == ErrorKind::Aborted || self.0.is_end_of_run
    }

    /// Returns whether an agent that ends with this has a response all the same.
    pub(crate) fn ends_with_response(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::Interrupted | ErrorKind::InvocationEnded
        )
    }

    /// Returns how long the server asked to wait before a retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the provider's metadata about its response: status, request id, rate limits.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// Returns the call that failed.
    #[must_use]
    pub fn call(&self) -> Option<&CallSite> {
        self.0.call.as_ref()
    }

    /// Returns the callback that raised the error, if one did.
    #[must_use]
    pub fn raised_by(&self) -> Option<&RaisedBy> {
        self.0.raised_by.as_ref()
    }

    /// Returns the interrupts of an [`interrupt`](Self::interrupt); empty for any other error.
    pub fn interrupts(&self) -> &[Interrupt] {
        self.0.interrupts.as_deref().unwrap_or_default()
    }

    /// Returns the first error of type `T` in the source chain.
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

    /// Sets the message.
    #[must_use]
    pub fn with_message(self, message: impl Into<Cow<'static, str>>) -> Self {
        self.update(|e| {
            e.message = message.into();
            // The message is no longer the source's own, so the chain shows the source from now on.
            if let Some(Cause::Same(cause)) =
                e.cause.take_if(|cause| matches!(cause, Cause::Same(_)))
            {
                e.cause = Some(Cause::Below(cause));
            }
        })
    }

    /// Sets the call that failed.
    #[must_use]
    pub fn with_call(self, call: CallSite) -> Self {
        self.update(|e| e.call = Some(call))
    }

    /// Sets the source.
    #[must_use]
    pub fn with_source(self, source: impl Into<BoxError>) -> Self {
        let source: BoxError = source.into();
        self.update(|e| e.cause = Some(Cause::Below(Arc::from(source))))
    }

    /// Sets whether a retry may succeed.
    #[must_use]
    pub fn with_retryable(self, retryable: bool) -> Self {
        self.update(|e| e.retryable = Some(retryable))
    }

    /// Sets the wait that the server asked for.
    #[must_use]
    pub fn with_retry_after(self, after: Duration) -> Self {
        self.update(|e| e.retry_after = Some(after))
    }

    /// Sets the provider's metadata.
    #[must_use]
    pub fn with_metadata(self, metadata: Metadata) -> Self {
        self.update(|e| e.metadata = metadata)
    }

    /// Sets the call, unless an inner call was set already.
    pub(crate) fn in_call(self, site: impl FnOnce() -> CallSite) -> Self {
        // The innermost call is the one that has failed.
        if self.0.call.is_some() {
            return self;
        }
        self.update(|e| e.call = Some(site()))
    }

    /// Sets the kind of an error of kind [`Other`](ErrorKind::Other).
    pub(crate) fn or_kind(self, kind: ErrorKind) -> Self {
        if self.0.kind != ErrorKind::Other {
            return self;
        }
        self.update(|e| e.kind = kind)
    }

    /// Sets the callback and the hook, unless an inner callback was set already.
    pub(crate) fn by(
        self,
        callback: impl FnOnce() -> Cow<'static, str>,
        hook: &'static str,
    ) -> Self {
        // A hook's error without a kind is the callback's; any other keeps what it says.
        self.or_kind(ErrorKind::Callback).update(|e| {
            e.raised_by.get_or_insert_with(|| RaisedBy {
                callback: callback(),
                hook: hook.into(),
            });
        })
    }

    /// Changes the fields, of a copy if the error is shared.
    pub(super) fn update(mut self, change: impl FnOnce(&mut ErrorFields)) -> Self {
        change(Arc::make_mut(&mut self.0));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(call) = self.call() {
            write!(f, "{call}: ")?;
        }
        write!(f, "{}: {}", self.kind(), self.message())?;
        if let Some(raised_by) = self.raised_by() {
            write!(f, " (raised by {raised_by})")?;
        }
        write_origin(f, self.metadata())?;
        if let Some(after) = self.retry_after() {
            write!(f, "; retry after {} s", after.as_secs_f64())?;
        }
        match self.kind().advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

/// Writes where the error came from, as far as it is known.
fn write_origin(f: &mut fmt::Formatter<'_>, metadata: &Metadata) -> fmt::Result {
    let status = metadata.status.map(|status| status.to_string());
    let origin = [
        ("", metadata.endpoint.as_deref()),
        ("status ", status.as_deref()),
        ("code ", metadata.error_code.as_deref()),
        ("request ", metadata.request_id.as_deref()),
    ];
    let known = origin.map(|(name, value)| value.map(|value| format!("{name}{value}")));
    match &known.into_iter().flatten().collect::<Vec<_>>()[..] {
        [] => Ok(()),
        known => write!(f, " ({})", known.join(", ")),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = &*self.0;
        f.debug_struct("Error")
            .field("kind", &fields.kind)
            .field("message", &fields.message)
            .field("call", &fields.call)
            .field("raised_by", &fields.raised_by)
            .field("metadata", &fields.metadata)
            .field("cause", &fields.cause)
            .finish_non_exhaustive()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self.0.cause.as_ref()? {
            Cause::Below(error) => Some(&**error),
            // Skipped: a reporter that prints the chain would print its message twice.
            Cause::Same(error) => error.source(),
        }
    }
}

/// Returns the next error of a chain. An `io::Error` hides the error that it wraps and shows that
/// error's source instead.
pub(super) fn below<'a>(
    error: &'a (dyn StdError + 'static),
) -> Option<&'a (dyn StdError + 'static)> {
    match error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::get_ref)
    {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
