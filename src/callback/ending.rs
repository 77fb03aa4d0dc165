use super::{Callbacks, Outcome};
use crate::error::Result;
use crate::panic::catch;
use crate::request::Request;

/// A call that has begun. It owns the request, and however it ends, it tells every callback that
/// was entered so, once.
pub(super) struct Begun<R: Request> {
    pub(super) request: R,
    pub(super) callbacks: Callbacks<R>,
    /// Hooks run from the first callback on, so those entered are always the first few.
    entered: usize,
    ended: bool,
}

impl<R: Request> Begun<R> {
    pub(super) fn new(request: R, callbacks: Callbacks<R>) -> Self {
        Self { request, callbacks, entered: 0, ended: false }
    }

    /// A call of which only a phase is run: nobody is told of an end.
    pub(super) fn unended(request: R, callbacks: Callbacks<R>) -> Self {
        Self { request, callbacks, entered: 0, ended: true }
    }

    /// A hook of the callback at `index` is about to run.
    pub(super) fn enter(&mut self, index: usize) {
        self.entered = self.entered.max(index + 1);
    }

    pub(super) fn end(mut self, result: &Result<R::Response>) {
        match result {
            Ok(response) => self.tell(Outcome::Done(response)),
            Err(error) => self.tell(Outcome::Failed(error)),
        }
    }

    fn tell(&mut self, outcome: Outcome<'_, R::Response>) {
        self.ended = true;
        for callback in &self.callbacks.as_slice()[..self.entered] {
            // It cannot change anything, so neither can its panic.
            drop(catch(|| callback.get().on_end(&self.request, outcome)));
        }
    }
}

impl<R: Request> Drop for Begun<R> {
    fn drop(&mut self) {
        if !self.ended {
            self.tell(Outcome::Dropped);
        }
    }
}
