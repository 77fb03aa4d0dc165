use super::phases::Asked;
use super::{Callbacks, Outcome};
use crate::error::Result;
use crate::panic::catch;
use crate::request::Request;

/// A call that has begun. It owns the request, and however it ends, it tells every callback that
/// was entered so, once.
pub(super) struct CallState<R: Request> {
    pub(super) request: R,
    pub(super) callbacks: Callbacks<R>,
    /// Hooks run from the first callback on, so those entered are the first few, and of those
    /// behind them the first few guards.
    entered: usize,
    guards_entered: usize,
    ended: bool,
}

impl<R: Request> CallState<R> {
    pub(super) fn new(request: R, callbacks: Callbacks<R>) -> Self {
        let callbacks = callbacks.in_run(request.context());
        Self { request, callbacks, entered: 0, guards_entered: 0, ended: false }
    }

    /// A call of which only a phase is run: nobody is told of an end.
    pub(super) fn unended(request: R, callbacks: Callbacks<R>) -> Self {
        Self { request, callbacks, entered: 0, guards_entered: 0, ended: true }
    }

    /// Whether a hook of the callback at `index` is to run; if so, it is about to.
    pub(super) fn enter(&mut self, index: usize, asked: Asked) -> bool {
        let entered = match asked {
            Asked::All | Asked::Told => &mut self.entered,
            Asked::Guards if self.is_guard(index) => &mut self.guards_entered,
            Asked::Guards => return false,
        };
        *entered = (*entered).max(index + 1);
        true
    }

    pub(super) fn is_guard(&self, index: usize) -> bool {
        // One that cannot say so is taken for one.
        catch(|| self.callbacks.as_slice()[index].get().is_guard()).unwrap_or(true)
    }

    pub(super) fn end(mut self, result: &Result<R::Response>) {
        match result {
            Ok(response) => self.tell(Outcome::Done(response)),
            Err(error) => self.tell(Outcome::Failed(error)),
        }
    }

    fn tell(&mut self, outcome: Outcome<'_, R::Response>) {
        self.ended = true;
        for (index, callback) in self.callbacks.as_slice().iter().enumerate() {
            if index < self.entered || index < self.guards_entered && self.is_guard(index) {
                // It cannot change anything, so neither can its panic.
                drop(catch(|| callback.get().on_end(&self.request, outcome)));
            }
        }
    }
}

impl<R: Request> Drop for CallState<R> {
    fn drop(&mut self) {
        if !self.ended {
            self.tell(Outcome::Dropped);
        }
    }
}
