use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::tool_call_scope::ToolCallScope;
use crate::lock::lock;

/// The place of an agent in the tree of the agents of a run.
#[derive(Default)]
pub(crate) struct Node {
    pub(super) path: Arc<str>,
    pub(super) caller: Option<ToolCallScope>,
    /// The number among those of the same place, from 1; 0 if the agent is not counted.
    pub(super) number: u32,
    /// A team called this agent, so that an escalation stops here.
    pub(crate) is_member: bool,
    escalated: AtomicBool,
    /// Counts the agents called in this one that have conversations of their own, by their places.
    children: Mutex<BTreeMap<Arc<str>, u32>>,
}

impl Node {
    pub(super) fn new(path: Arc<str>, caller: Option<ToolCallScope>) -> Self {
        Self {
            path,
            caller,
            ..Self::default()
        }
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn is_in(&self, call: &ToolCallScope) -> bool {
        self.caller.as_ref() == Some(call)
    }

    pub(super) fn count(&self, place: Arc<str>) -> u32 {
        let mut children = lock(&self.children);
        let count = children.entry(place).or_default();
        *count += 1;
        *count
    }

    pub(super) fn escalate(&self) {
        self.escalated.store(true, Ordering::Release);
    }

    /// Returns whether the team that called the agent was told to end.
    pub(crate) fn escalated(&self) -> bool {
        self.escalated.load(Ordering::Acquire)
    }
}

/// Returns the path of an agent that is called at this one.
pub(super) fn below(path: &str, agent: &str) -> Arc<str> {
    match path {
        "" => agent.into(),
        path => format!("{path}/{agent}").into(),
    }
}
