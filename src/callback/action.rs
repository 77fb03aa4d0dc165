use crate::error::Error;

/// The decision of a `before` or an `after`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Action<T> {
    /// Run the next callback. The default.
    #[default]
    Continue,
    /// Skip the remaining callbacks of this band and phase, except
    /// [guards](super::Callback::is_guard), and continue: send the request as it now is, or keep
    /// the response.
    SkipRest,
    /// Use this response: from `before` instead of the call, from `after` instead of the response.
    Respond(T),
}

impl<T> Action<T> {
    // A response is large and rare: in a box, the decision of every other hook stays small.
    #[inline]
    pub(super) fn boxed(self) -> Action<Box<T>> {
        self.map(Box::new)
    }

    #[inline]
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Action<U> {
        match self {
            Self::Continue => Action::Continue,
            Self::SkipRest => Action::SkipRest,
            Self::Respond(response) => Action::Respond(change(response)),
        }
    }
}

impl<T> Action<Box<T>> {
    pub(super) fn unboxed(self) -> Action<T> {
        self.map(|response| *response)
    }
}

/// The decision of an `on_error`.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
#[must_use]
pub enum Recovery<T> {
    /// Run the next callback. If none recovers the error, it is returned. The default.
    #[default]
    Propagate,
    /// Replace the error; the next callback sees the new one.
    Fail(Error),
    /// Retry the call with the request as it now is. If the band has no retry left, this acts as
    /// [`Propagate`](Self::Propagate).
    Retry,
    /// Use this response.
    Fallback(T),
}

/// The end of a call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a, T> {
    /// The call returned this response.
    Done(&'a T),
    /// The call failed with this error.
    Failed(&'a Error),
    /// The call's future was dropped (timeout, cancellation or disconnect).
    Dropped,
}

// By hand: a derive would ask for `T: Clone`, and only references are copied.
impl<T> Clone for Outcome<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Outcome<'_, T> {}
