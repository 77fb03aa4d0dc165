use super::phases::Asked;
use super::{Callbacks, Outcome};
use crate::call::Request;
use crate::panic::catch;

/// A call that has begun: its request, and the callbacks that were entered.
pub(super) struct CallState<R: Request> {
    pub(super) request: R,
    pub(super) callbacks: Callbacks<R>,
    /// Hooks run from the first callback on, so those entered are the first few, and of those
    /// behind them the first few guards.
    entered: usize,
    guards_entered: usize,
}

impl<R: Request> CallState<R> {
    pub(super) fn new(request: R, callbacks: Callbacks<R>) -> Self {
        let callbacks = callbacks.in_run(request.context());
        Self { request, callbacks, entered: 0, guards_entered: 0 }
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

    /// Tells every callback that was entered how the call has ended.
    pub(super) fn end(&self, outcome: Outcome<'_, R::Response>) {
        for (index, callback) in self.callbacks.as_slice().iter().enumerate() {
            if index < self.entered || index < self.guards_entered && self.is_guard(index) {
                // It cannot change anything, so neither can its panic.
                drop(catch(|| callback.get().on_end(&self.request, outcome)));
            }
        }
    }
}
