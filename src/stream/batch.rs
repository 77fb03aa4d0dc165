use std::collections::VecDeque;
use std::sync::Arc;

use super::{Event, EventKind, Invocation};

/// Where one agent tells what happens.
pub(super) struct EventBatch<'a> {
    pub(super) invocation: &'a Arc<Invocation>,
    pub(super) events: &'a mut VecDeque<Event>,
    /// Nobody can tell anything after this.
    pub(super) is_over: &'a mut bool,
}

impl EventBatch<'_> {
    #[inline]
    pub(super) fn push(&mut self, kind: EventKind) {
        self.events.push_back(Event { invocation: self.invocation.clone(), kind });
    }

    /// The last event: nothing comes after it, whoever would tell it.
    pub(super) fn end(&mut self, kind: EventKind) {
        self.push(kind);
        *self.is_over = true;
    }
}
