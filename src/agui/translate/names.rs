//! Names that stay apart where agents do not know of one another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::error::Pending;
use crate::lock::lock;
use crate::stream::Invocation;

/// What tool calls are called on the wire. Models name their calls within one conversation; a
/// front end sees those of all subagents side by side.
#[derive(Debug, Default)]
pub(super) struct Names(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// In whose conversation a call of this name came first.
    first: HashMap<Arc<str>, Arc<str>>,
    /// The call on the wire that is waited for, by what waits.
    waits: HashMap<String, Arc<str>>,
}

impl Names {
    /// A call in this conversation: by its own name, unless another conversation has had a call
    /// of that name before.
    pub(super) fn call(&self, conversation: &Invocation, id: &Arc<str>) -> Arc<str> {
        let mut known = lock(&self.0);
        let first = known.first.entry(id.clone()).or_insert_with(|| conversation.id.clone());
        match *first == conversation.id {
            true => id.clone(),
            false => format!("{}-{id}", conversation.id).into(),
        }
    }

    /// A conversation waits for this. Those around it wait for the same, and come later.
    pub(super) fn waits(&self, conversation: &Invocation, pending: &Pending) {
        let Some(call) = pending.tool_call_id.as_deref() else { return };
        let call = self.call(conversation, &call.into());
        lock(&self.0).waits.entry(pending.id.clone()).or_insert(call);
    }

    /// The call on the wire that this waits for.
    pub(super) fn call_of(&self, pending: &Pending) -> Option<Arc<str>> {
        let known = lock(&self.0).waits.get(&pending.id).cloned();
        known.or_else(|| pending.tool_call_id.as_deref().map(Into::into))
    }
}
