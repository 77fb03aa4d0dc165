use std::ops::Index;

use super::arc_callback::ArcCallback;
use super::hook_set::HookSet;
use crate::call::Request;

/// The callbacks of a band, in order, and those among them that have each hook.
#[derive(Clone)]
pub(super) struct Members<R: Request> {
    all: Vec<ArcCallback<R>>,
    // Indices instead of a second list: `on_end` and the counts of entered callbacks go by the
    // position among all.
    with_hook: [Vec<usize>; HookSet::ALL.len()],
}

impl<R: Request> Members<R> {
    pub(super) fn push(&mut self, callback: ArcCallback<R>) {
        // Sorted by hook on registration, so that a call does not pass callbacks that lack the
        // hook.
        for (hook, with_hook) in HookSet::ALL.into_iter().zip(&mut self.with_hook) {
            if callback.has(hook) {
                with_hook.push(self.all.len());
            }
        }
        self.all.push(callback);
    }

    pub(super) fn all(&self) -> &[ArcCallback<R>] {
        &self.all
    }

    /// Returns the positions of the callbacks that have this hook.
    #[inline]
    pub(super) fn with(&self, hook: HookSet) -> &[usize] {
        &self.with_hook[hook.number()]
    }
}

impl<R: Request> Index<usize> for Members<R> {
    type Output = ArcCallback<R>;

    #[inline]
    fn index(&self, index: usize) -> &ArcCallback<R> {
        &self.all[index]
    }
}

impl<R: Request> Default for Members<R> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            with_hook: Default::default(),
        }
    }
}
