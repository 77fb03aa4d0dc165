use std::fmt;
use std::sync::Arc;

use super::erased::Erased;
use super::hook_set::HookSet;
use crate::call::Request;
use crate::panic::catch;

/// A type-erased callback. Cloning is O(1).
#[derive(Clone)]
pub struct ArcCallback<R: Request> {
    callback: Arc<dyn Erased<R>>,
    hooks: HookSet,
    is_guard: bool,
    /// Shared with the callback at the other edge of the call that it is a pair with.
    pair: Option<Arc<()>>,
}

impl<R: Request> ArcCallback<R> {
    pub(super) fn erased<C: Erased<R> + 'static>(callback: C) -> Self {
        // A callback that panics here counts as a guard: the other answer could let a call through.
        let is_guard = catch(|| callback.is_guard()).unwrap_or(true);
        // Both are asked once, here: a band looks at them for every call.
        Self {
            hooks: callback.hooks(),
            is_guard,
            pair: None,
            callback: Arc::new(callback),
        }
    }

    /// Makes this one of a pair.
    pub(super) fn of_pair(mut self, pair: &Arc<()>) -> Self {
        self.pair = Some(pair.clone());
        self
    }

    /// Returns whether the two are a pair.
    pub(super) fn is_pair_with(&self, other: &Self) -> bool {
        match (&self.pair, &other.pair) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }

    pub(super) fn get(&self) -> &dyn Erased<R> {
        &*self.callback
    }

    /// Returns whether any of these hooks is implemented rather than left at its default.
    #[inline]
    pub(super) fn has(&self, hooks: HookSet) -> bool {
        self.hooks.has(hooks)
    }

    /// Returns whether it is a guard.
    #[inline]
    pub(super) fn guards(&self) -> bool {
        self.is_guard
    }
}

impl<R: Request> fmt::Debug for ArcCallback<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArcCallback")
            .field(&self.callback.name())
            .finish()
    }
}
