//! The moment at which a call shows its first output.

use tower_agent::call::Request;

/// Looks for the first output of a call that runs: the first delta of a stream.
///
/// A call that is not streamed, or has had output before, shows none until its end.
#[derive(Debug)]
pub(crate) struct FirstOutput<R>(Option<R>);

impl<R: Request> FirstOutput<R> {
    pub(crate) fn of(request: &R) -> Self {
        let is_new = !request.is_committed();
        Self(is_new.then(|| request.clone()))
    }

    /// Returns `true` once: when there is output for the first time.
    pub(crate) fn is_seen(&mut self) -> bool {
        let is_seen = self.0.as_ref().is_some_and(R::is_committed);
        if is_seen {
            self.0 = None;
        }
        is_seen
    }
}
