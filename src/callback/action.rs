use crate::error::Error;

/// What a `before` or an `after` decides.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Action<T> {
    /// Ask the next callback.
    Continue,
    /// Skip the rest of the band's callbacks in this phase, but for [guards](super::Callback::is_guard):
    /// make the call with the request as it now is, or keep the response.
    SkipRest,
    /// Answer with this: without a call from `before`, in the response's place from `after`.
    Respond(T),
}

impl<T> Action<T> {
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

/// What an `on_error` decides.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub enum Recovery<T> {
    /// Ask the next callback; if none recovers it, the error stands.
    Propagate,
    /// Put this error in its place; the next callback sees it.
    Fail(Error),
    /// Make the call again with the request as it now is. Where the band has no retry left, this
    /// is [`Propagate`](Self::Propagate).
    Retry,
    /// Answer with this.
    Fallback(T),
}

/// How a call ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a, T> {
    /// With this response.
    Done(&'a T),
    /// With this error.
    Failed(&'a Error),
    /// Not at all: its future was dropped, by a timeout, a cancellation or a reader that left.
    Dropped,
}

impl<T> Clone for Outcome<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Outcome<'_, T> {}
