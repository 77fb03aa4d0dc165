use std::borrow::Cow;

use crate::ours::ours;
use tower_agent::error::{BoxError, Result};
use tower_agent::model::ModelResponse;

/// An argument of [`IntoVerdict::into_verdict`]. Nobody else can name it, so only this crate
/// implements the trait and calls its method.
#[derive(Debug)]
pub struct Seal;

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The call may continue, or its response may be used.
    Pass,
    /// The guardrail trips, for this reason.
    Trip(Cow<'static, str>),
}

impl Verdict {
    /// Creates a [`Trip`](Self::Trip) with this reason.
    pub fn trip(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Trip(reason.into())
    }
}

/// Return types of a check: a [`Verdict`], or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a check cannot return `{Self}`",
    label = "neither a `Verdict` nor a `Result` of one",
    note = "return `Verdict::Pass` or `Verdict::trip(\"why\")`, or a `Result` of one with any error"
)]
pub trait IntoVerdict {
    /// Converts the returned value to a verdict.
    ///
    /// # Errors
    ///
    /// Returns the check's error; the guardrail then trips.
    fn into_verdict(self, _: Seal) -> Result<Verdict>;
}

impl IntoVerdict for Verdict {
    fn into_verdict(self, _: Seal) -> Result<Verdict> {
        Ok(self)
    }
}

impl<E: Into<BoxError>> IntoVerdict for Result<Verdict, E> {
    fn into_verdict(self, _: Seal) -> Result<Verdict> {
        self.map_err(ours)
    }
}

/// The consequence when a guardrail trips.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OnTrip {
    /// The model call fails with an error of kind [`Denied`](tower_agent::ErrorKind::Denied), or
    /// [`Callback`](tower_agent::ErrorKind::Callback) if the check itself failed. Its cause is a
    /// [`Tripped`], and it is not retryable. Callbacks outside may recover it.
    #[default]
    Fail,
    /// The whole run is [aborted](tower_agent::Error::abort); nothing outside can undo it.
    Abort,
    /// The call returns this response. For a check [before](super::Guardrail::before) or
    /// [beside](super::Guardrail::beside) the model call, its [usage](ModelResponse::usage) is the
    /// one set on it, or zero. For a check [after](super::Guardrail::after) the call, it is that of
    /// the replaced response.
    Answer(Box<ModelResponse>),
}

impl OnTrip {
    /// Creates an [`Answer`](Self::Answer) with this text.
    #[must_use]
    pub fn answer(text: impl Into<String>) -> Self {
        Self::Answer(Box::new(ModelResponse::from_text(text)))
    }
}

/// A guardrail has tripped. This is the cause of the error that the call fails with or the run is
/// aborted with.
///
/// ```
/// use tower_agent::Error;
/// use tower_agent_middleware::guardrail::Tripped;
///
/// fn reason(error: &Error) -> Option<&str> {
///     error.downcast_ref::<Tripped>().map(|tripped| &*tripped.reason)
/// }
/// # drop(reason);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guardrail `{guardrail}` tripped: {reason}")]
#[non_exhaustive]
pub struct Tripped {
    /// The name of the guardrail.
    pub guardrail: Cow<'static, str>,
    /// The reason.
    pub reason: Cow<'static, str>,
}
