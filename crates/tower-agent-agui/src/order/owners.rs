//! The entities of a run and their owners.
//!
//! The core tracks open blocks, too. This does not rely on it: callbacks may have added, changed
//! or dropped any of these events.

use std::collections::HashMap;
use std::sync::Arc;

use super::violation::Violation;
use crate::wire::{Message, MessageKind, SubagentStarted};

/// A subagent; `None` is the agent itself.
pub(super) type Owner = Option<Arc<str>>;

/// The place of an entity in the order of opening; the last opened is closed first.
pub(super) type Opened = Option<u64>;

/// A message or a tool call. Its owner is kept after its end, since it may be opened again.
#[derive(Clone, Debug, Default)]
pub(super) struct Entity {
    pub(super) owner: Owner,
    pub(super) opened: Opened,
}

/// A reasoning block and a reasoning message may share an id, and then an owner.
#[derive(Clone, Debug, Default)]
pub(super) struct Thought {
    pub(super) owner: Owner,
    pub(super) span: Opened,
    pub(super) message: Opened,
}

/// All entities of the run.
#[derive(Clone, Debug, Default)]
pub(super) struct Entities {
    pub(super) messages: HashMap<Arc<str>, Entity>,
    pub(super) tool_calls: HashMap<Arc<str>, Entity>,
    pub(super) thoughts: HashMap<Arc<str>, Thought>,
    pub(super) activities: HashMap<Arc<str>, Owner>,
    pub(super) steps: HashMap<(Owner, Arc<str>), u64>,
    pub(super) subagents: HashMap<Arc<str>, Opened>,
    clock: u64,
}

impl Entities {
    /// Returns the next time of the clock, which counts openings.
    pub(super) fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Adopts the owners of a conversation's messages: all of them, or only those not known yet.
    pub(super) fn seed(&mut self, messages: &[Message], as_they_stand: bool) {
        for message in messages {
            let id = &message.id;
            let owner = &message.subagent_run_id;
            match message.kind {
                MessageKind::Reasoning { .. } => {
                    if as_they_stand || !self.thoughts.contains_key(id) {
                        let thought = self.thoughts.entry(id.clone()).or_default();
                        thought.owner.clone_from(owner);
                    }
                }
                MessageKind::Activity { .. } => {
                    if as_they_stand || !self.activities.contains_key(id) {
                        self.activities.insert(id.clone(), owner.clone());
                    }
                }
                MessageKind::Developer { .. }
                | MessageKind::System { .. }
                | MessageKind::Assistant { .. }
                | MessageKind::User { .. }
                | MessageKind::Tool { .. } => {
                    if as_they_stand || !self.messages.contains_key(id) {
                        let entity = self.messages.entry(id.clone()).or_default();
                        entity.owner.clone_from(owner);
                    }
                }
            }
            for call in message.tool_calls() {
                // A call belongs to the owner of its message.
                if as_they_stand || !self.tool_calls.contains_key(&call.id) {
                    let entity = self.tool_calls.entry(call.id.clone()).or_default();
                    entity.owner.clone_from(owner);
                }
            }
        }
    }
}

/// Checks whether an event tagged `tag` may continue an entity of `owner`. An event without a tag
/// may.
pub(super) fn agree(
    event: &'static str,
    id: &Arc<str>,
    tag: Option<&Arc<str>>,
    owner: &Owner,
) -> Result<(), Violation> {
    if tag.is_none() || tag == owner.as_ref() {
        return Ok(());
    }
    Err(Violation::Owner {
        event,
        id: id.clone(),
        owner: owner.clone(),
        found: tag.cloned(),
    })
}

/// Opens the entity; returns `false` if it is already open.
pub(super) fn open(
    event: &'static str,
    id: &Arc<str>,
    tag: Option<&Arc<str>>,
    (owner, opened): (&Owner, &mut Opened),
    now: u64,
) -> Result<bool, Violation> {
    agree(event, id, tag, owner)?;
    let opens = opened.is_none();
    opened.get_or_insert(now);
    Ok(opens)
}

/// Closes the entity; returns `false` if it is not open.
pub(super) fn close(
    event: &'static str,
    id: &Arc<str>,
    tag: Option<&Arc<str>>,
    (owner, opened): (&Owner, &mut Opened),
) -> Result<bool, Violation> {
    // The end of an entity that is not open is dropped, whoever sends it.
    if opened.is_some() {
        agree(event, id, tag, owner)?;
    }
    Ok(opened.take().is_some())
}

impl Entities {
    pub(super) fn start_text(
        &mut self,
        event: &'static str,
        id: &Arc<str>,
        tag: Option<&Arc<str>>,
    ) -> Result<bool, Violation> {
        let now = self.now();
        if let Some(message) = self.messages.get_mut(id) {
            return open(event, id, tag, (&message.owner, &mut message.opened), now);
        }
        self.messages.insert(
            id.clone(),
            Entity {
                owner: tag.cloned(),
                opened: Some(now),
            },
        );
        Ok(true)
    }

    pub(super) fn start_tool_call(
        &mut self,
        id: &Arc<str>,
        parent: Option<&Arc<str>>,
        tag: Option<&Arc<str>>,
    ) -> Result<bool, Violation> {
        const EVENT: &str = "TOOL_CALL_START";
        let now = self.now();
        // A call belongs to the owner of its message.
        let message = parent.and_then(|parent| Some((parent, self.messages.get(parent)?)));
        let owner = match message {
            Some((parent, message)) => {
                agree(EVENT, parent, tag, &message.owner)?;
                message.owner.clone()
            }
            None => tag.cloned(),
        };
        let Some(call) = self.tool_calls.get_mut(id) else {
            self.tool_calls.insert(
                id.clone(),
                Entity {
                    owner,
                    opened: Some(now),
                },
            );
            return Ok(true);
        };
        // A call that starts again keeps its owner, which another message cannot change.
        if message.is_some() && owner != call.owner && call.opened.is_none() {
            return Err(Violation::Owner {
                event: EVENT,
                id: id.clone(),
                owner: call.owner.clone(),
                found: owner,
            });
        }
        open(EVENT, id, tag, (&call.owner, &mut call.opened), now)
    }

    pub(super) fn start_thought(
        &mut self,
        event: &'static str,
        id: &Arc<str>,
        tag: Option<&Arc<str>>,
        which: impl Fn(&mut Thought) -> &mut Opened,
    ) -> Result<bool, Violation> {
        let now = self.now();
        let thought = self.thoughts.entry(id.clone()).or_insert_with(|| Thought {
            owner: tag.cloned(),
            ..Thought::default()
        });
        let owner = thought.owner.clone();
        open(event, id, tag, (&owner, which(thought)), now)
    }

    pub(super) fn start_step(&mut self, tag: Option<&Arc<str>>, name: &Arc<str>) -> bool {
        let now = self.now();
        let mut opens = false;
        self.steps
            .entry((tag.cloned(), name.clone()))
            .or_insert_with(|| {
                opens = true;
                now
            });
        opens
    }

    pub(super) fn finish_step(
        &mut self,
        tag: Option<&Arc<str>>,
        name: &Arc<str>,
    ) -> Result<bool, Violation> {
        if self.steps.remove(&(tag.cloned(), name.clone())).is_some() {
            return Ok(true);
        }
        // Steps have no ids. The same name may be open for several agents, but only its own agent
        // ends each.
        match self.steps.keys().find(|(_, step)| step == name) {
            Some((owner, _)) => Err(Violation::Owner {
                event: "STEP_FINISHED",
                id: name.clone(),
                owner: owner.clone(),
                found: tag.cloned(),
            }),
            None => Ok(false),
        }
    }

    pub(super) fn start_subagent(&mut self, started: &SubagentStarted) -> Result<bool, Violation> {
        let id = &started.subagent_run_id;
        match self.subagents.get(id) {
            Some(Some(_)) => return Ok(false),
            // It has ended. Unlike a message, a subagent is not opened again.
            Some(None) => return Err(Violation::SubagentReused { id: id.clone() }),
            None => {}
        }
        if let Some(parent) = &started.parent_subagent_run_id
            && !self.subagents.contains_key(parent)
        {
            return Err(Violation::UnknownParent {
                id: id.clone(),
                parent: parent.clone(),
            });
        }
        let now = self.now();
        self.subagents.insert(id.clone(), Some(now));
        Ok(true)
    }
}
