use std::borrow::Cow;

use crate::error::{BoxError, Error, Result};
use crate::model::ModelResponse;

/// What a check says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The call may go on, or its answer may be seen.
    Pass,
    /// It may not, for this reason.
    Trip(Cow<'static, str>),
}

impl Verdict {
    /// Not so, for this reason.
    pub fn trip(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Trip(reason.into())
    }
}

/// What a check may return: a [`Verdict`], or a `Result` of one.
#[diagnostic::on_unimplemented(
    message = "a check cannot come to `{Self}`",
    label = "neither a `Verdict` nor a `Result` of one",
    note = "return `Verdict::Pass` or `Verdict::trip(\"why\")`, or a `Result` of one with any error"
)]
pub trait IntoVerdict {
    /// The verdict.
    ///
    /// # Errors
    ///
    /// Why there is none; a guardrail then trips.
    fn into_verdict(self) -> Result<Verdict>;
}

impl IntoVerdict for Verdict {
    fn into_verdict(self) -> Result<Verdict> {
        Ok(self)
    }
}

impl<E: Into<BoxError>> IntoVerdict for Result<Verdict, E> {
    fn into_verdict(self) -> Result<Verdict> {
        self.map_err(|error| Error::from(error.into()))
    }
}

/// What happens when a guardrail trips.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OnTrip {
    /// The model call fails, with an error of kind [`Callback`](crate::ErrorKind::Callback) that
    /// has a [`Tripped`] as its cause and is not retryable. Callbacks outside may recover it.
    #[default]
    Fail,
    /// The whole run is [aborted](crate::Error::abort); nothing outside can undo it.
    Abort,
    /// This is the answer. In the model's place, [before](super::Guardrail::before) or
    /// [beside](super::Guardrail::beside), it has [used](ModelResponse::usage) what it says, and
    /// nothing where it says nothing; in the place of an answer, [after](super::Guardrail::after),
    /// what that has used.
    Answer(Box<ModelResponse>),
}

impl OnTrip {
    /// Answers with this text.
    #[must_use]
    pub fn answer(text: impl Into<String>) -> Self {
        Self::Answer(Box::new(ModelResponse::from_text(text)))
    }
}

/// A guardrail has tripped: the cause of the error that a call fails with, or a run is aborted
/// with.
///
/// ```
/// use tower_agent::Error;
/// use tower_agent::middleware::guardrail::Tripped;
///
/// fn reason(error: &Error) -> Option<&str> {
///     error.downcast_ref::<Tripped>().map(|tripped| &*tripped.reason)
/// }
/// # drop(reason);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{guardrail}` has tripped: {reason}")]
#[non_exhaustive]
pub struct Tripped {
    /// The guardrail's name.
    pub guardrail: Cow<'static, str>,
    /// Why.
    pub reason: Cow<'static, str>,
}
