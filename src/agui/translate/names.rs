//! Names that stay apart where agents do not know of one another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::agui::Conversation;
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
    /// The latest call of an agent by this name, where the front end has an earlier one.
    renamed: HashMap<(Arc<str>, Arc<str>), Arc<str>>,
    /// What waits, by its own id.
    waits: HashMap<String, Waiting>,
}

/// What waits, as it is called on the wire.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) id: String,
    pub(super) call: Option<Arc<str>>,
}

impl Names {
    /// The message asks for a call. By its own name, unless another conversation has had a call
    /// of that name before, or the front end has one from an earlier message: it would take the
    /// two for one, and models do count from the start again.
    pub(super) fn asked(
        &self,
        by: &Invocation,
        id: &Arc<str>,
        message: &str,
        shown: &Conversation,
    ) -> Arc<str> {
        let key = (by.id.clone(), id.clone());
        lock(&self.0).renamed.remove(&key);
        let name = self.call(by, id);
        if !shown.asks_elsewhere(&name, message) {
            return name;
        }
        let name: Arc<str> = format!("{message}-{id}").into();
        lock(&self.0).renamed.insert(key, name.clone());
        name
    }

    /// What the call that an agent makes is called.
    pub(super) fn call(&self, by: &Invocation, id: &Arc<str>) -> Arc<str> {
        let known = &mut *lock(&self.0);
        if let Some(name) = known.renamed.get(&(by.id.clone(), id.clone())) {
            return name.clone();
        }
        let conversation = &by.conversation().id;
        let first = known.first.entry(id.clone()).or_insert_with(|| conversation.clone());
        match first == conversation {
            true => id.clone(),
            false => format!("{conversation}-{id}").into(),
        }
    }

    /// An agent waits for this. Those around it wait for the same, and come later.
    pub(super) fn waits(&self, agent: &Invocation, pending: &Pending) {
        let Some(own) = pending.tool_call_id.as_deref() else { return };
        let call = self.call(agent, &own.into());
        // A call of the conversation itself comes back by its name on the wire, and is then waited
        // for by that; one of a subagent is made anew.
        let path = pending.id.strip_suffix(own).filter(|_| agent.conversation().number <= 1);
        let id = path.map_or_else(|| pending.id.clone(), |path| format!("{path}{call}"));
        let waiting = Waiting { id, call: Some(call) };
        lock(&self.0).waits.entry(pending.id.clone()).or_insert(waiting);
    }

    /// How this is called on the wire.
    pub(super) fn waiting(&self, pending: &Pending) -> Waiting {
        let known = lock(&self.0).waits.get(&pending.id).cloned();
        known.unwrap_or_else(|| Waiting {
            id: pending.id.clone(),
            call: pending.tool_call_id.as_deref().map(Into::into),
        })
    }
}
