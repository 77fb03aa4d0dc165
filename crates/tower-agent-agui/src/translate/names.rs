//! Ids that are unique across agents.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::conversation::Conversation;
use crate::lock::lock;
use tower_agent::error::Interrupt;
use tower_agent::stream::Invocation;

/// The ids of tool calls and interrupts on the wire. Models number their calls within one
/// conversation; a client sees those of all subagents together.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The calls of earlier runs of the conversation: the latest with each id.
    earlier: HashMap<Arc<str>, Arc<str>>,
    /// The conversation in which a call with this id came first.
    first: HashMap<Arc<str>, Arc<str>>,
    /// The latest call of an agent with this id, if the client has an earlier one.
    renamed: HashMap<(Arc<str>, Arc<str>), Arc<str>>,
    /// The ids sent to the client, by the message with the call and the call's own id.
    told: HashMap<(Arc<str>, Arc<str>), Arc<str>>,
    /// The waiting calls, by the interrupt's own id.
    waits: HashMap<String, Arc<str>>,
    /// The interrupts, by their own ids.
    interrupts: HashMap<String, Arc<str>>,
}

impl Names {
    /// Creates the ids of a conversation with these calls: the model's id and the id on the wire.
    pub(super) fn new(earlier: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        let earlier = earlier.into_iter().collect();
        Self(Mutex::new(Known {
            earlier,
            ..Known::default()
        }))
    }

    /// Returns the id for a call of a message: its own, unless another conversation already had a
    /// call with that id or an earlier message has one. The client would take the two for one, and
    /// models do restart their numbering.
    pub(super) fn asked(
        &self,
        by: &Invocation,
        id: &Arc<str>,
        message: &Arc<str>,
        shown: &Conversation,
    ) -> Arc<str> {
        let key = (by.id.clone(), id.clone());
        lock(&self.0).renamed.remove(&key);
        let mut name = self.call(by, id);
        if shown.asks_elsewhere(&name, message) {
            name = format!("{message}-{id}").into();
            lock(&self.0).renamed.insert(key, name.clone());
        }
        lock(&self.0)
            .told
            .insert((message.clone(), id.clone()), name.clone());
        name
    }

    /// Returns the id of a call that an agent makes.
    pub(crate) fn call(&self, by: &Invocation, id: &Arc<str>) -> Arc<str> {
        let known = &mut *lock(&self.0);
        if let Some(name) = known.renamed.get(&(by.id.clone(), id.clone())) {
            return name.clone();
        }
        let conversation = by.conversation();
        if conversation.number <= 1
            && let Some(name) = known.earlier.get(id)
        {
            return name.clone();
        }
        let conversation = &conversation.id;
        let first = known
            .first
            .entry(id.clone())
            .or_insert_with(|| conversation.clone());
        match first == conversation {
            true => id.clone(),
            false => format!("{conversation}-{id}").into(),
        }
    }

    /// Returns the id that was sent to the client for a message's call.
    pub(crate) fn told(&self, message: Option<&Arc<str>>, id: &Arc<str>) -> Arc<str> {
        let told = message.and_then(|message| {
            let key = (message.clone(), id.clone());
            lock(&self.0).told.get(&key).cloned()
        });
        told.unwrap_or_else(|| id.clone())
    }

    /// Records an agent's interrupt. The agents around it have the same one, later.
    pub(super) fn waits(&self, agent: &Invocation, pending: &Interrupt) {
        let Some(own) = pending.tool_call_id.as_deref() else {
            return;
        };
        let call = self.call(agent, &own.into());
        lock(&self.0)
            .waits
            .entry(pending.id.clone())
            .or_insert(call);
    }

    /// Returns the call that waits on this interrupt.
    pub(super) fn waiting(&self, pending: &Interrupt) -> Option<Arc<str>> {
        let known = lock(&self.0).waits.get(&pending.id).cloned();
        known.or_else(|| pending.tool_call_id.as_deref().map(Into::into))
    }

    /// Returns the id of an interrupt on the wire: it cannot be guessed, and is new each time.
    pub(crate) fn interrupt(&self, pending: &str) -> Arc<str> {
        let interrupts = &mut lock(&self.0).interrupts;
        if let Some(name) = interrupts.get(pending) {
            return name.clone();
        }
        let name: Arc<str> = uuid::Uuid::new_v4().to_string().into();
        interrupts.insert(pending.to_owned(), name.clone());
        name
    }
}
