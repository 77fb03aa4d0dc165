//! Names that stay apart where agents do not know of one another's.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::Conversation;
use crate::lock::lock;
use tower_agent::error::Interrupt;
use tower_agent::stream::Invocation;

/// What tool calls and questions are called on the wire. Models name their calls within one
/// conversation; a front end sees those of all subagents side by side.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The calls of earlier runs of the conversation: the latest of each name.
    earlier: HashMap<Arc<str>, Arc<str>>,
    /// In whose conversation a call of this name came first.
    first: HashMap<Arc<str>, Arc<str>>,
    /// The latest call of an agent by this name, where the front end has an earlier one.
    renamed: HashMap<(Arc<str>, Arc<str>), Arc<str>>,
    /// What the front end was told, by the message that asks and the call's own name.
    told: HashMap<(Arc<str>, Arc<str>), Arc<str>>,
    /// The calls that wait, by the question's own name.
    waits: HashMap<String, Arc<str>>,
    /// The questions, by their own names.
    interrupts: HashMap<String, Arc<str>>,
}

impl Names {
    /// The conversation has these calls by now: the model's name and that on the wire.
    pub(super) fn new(earlier: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        let earlier = earlier.into_iter().collect();
        Self(Mutex::new(Known { earlier, ..Known::default() }))
    }

    /// The message asks for a call. By its own name, unless another conversation has had a call
    /// of that name before, or the front end has one from an earlier message: it would take the
    /// two for one, and models do count from the start again.
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
        lock(&self.0).told.insert((message.clone(), id.clone()), name.clone());
        name
    }

    /// What the call that an agent makes is called.
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
        let first = known.first.entry(id.clone()).or_insert_with(|| conversation.clone());
        match first == conversation {
            true => id.clone(),
            false => format!("{conversation}-{id}").into(),
        }
    }

    /// What the front end was told that the call of a message is called.
    pub(crate) fn told(&self, message: Option<&Arc<str>>, id: &Arc<str>) -> Arc<str> {
        let told = message.and_then(|message| {
            let key = (message.clone(), id.clone());
            lock(&self.0).told.get(&key).cloned()
        });
        told.unwrap_or_else(|| id.clone())
    }

    /// An agent waits for this. Those around it wait for the same, and come later.
    pub(super) fn waits(&self, agent: &Invocation, pending: &Interrupt) {
        let Some(own) = pending.tool_call_id.as_deref() else { return };
        let call = self.call(agent, &own.into());
        lock(&self.0).waits.entry(pending.id.clone()).or_insert(call);
    }

    /// The call that waits for this.
    pub(super) fn waiting(&self, pending: &Interrupt) -> Option<Arc<str>> {
        let known = lock(&self.0).waits.get(&pending.id).cloned();
        known.or_else(|| pending.tool_call_id.as_deref().map(Into::into))
    }

    /// What a question is called: nobody can guess it, and it is another one each time.
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
