use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use super::tool_call_scope::ToolCallScope;
use crate::call_kind::CallKind;
use crate::error::{Error, ErrorKind, Interrupt};
use crate::lock::lock;

/// The interrupts and ends of an agent, by call: calls parallel to an interrupted one still finish.
#[derive(Default)]
pub(super) struct Latch {
    closed: AtomicBool,
    pub(super) entries: Mutex<Entries>,
    /// The number of times that tools have kept the thread, and that others had it afterwards.
    pub(super) blocks: AtomicU32,
    pub(super) let_go: AtomicU32,
    /// The reason why the response of an ended agent is not used.
    pub(super) withheld: OnceLock<Error>,
}

#[derive(Default)]
pub(super) struct Entries {
    all: Vec<LatchedEnding>,
    by_call: HashMap<LatchedCall, usize>,
    /// The first one that blocks every other call.
    first: Option<usize>,
    /// The first of tool calls in each turn, which block the calls of others.
    turns: Vec<(u32, usize)>,
    /// Tool calls of which an attempt was refused before it reached its tool.
    pub(super) refused: Vec<LatchedCall>,
    /// Tool calls of which an attempt was dropped in its tool.
    pub(super) dropped: Vec<LatchedCall>,
}

struct LatchedEnding {
    call: LatchedCall,
    error: Error,
    /// The call already has a result: an `after` raised this.
    answered: bool,
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct LatchedCall {
    pub(super) kind: CallKind,
    pub(super) turn: u32,
    pub(super) tool: Option<ToolCallScope>,
}

impl Latch {
    pub(super) fn set(&self, call: LatchedCall, error: &Error, answered: bool) {
        let mut guard = lock(&self.entries);
        let entries = &mut *guard;
        // The first ending of a call counts: a later one was raised on top of it.
        if entries.by_call.contains_key(&call) {
            return;
        }
        let at = entries.all.len();
        if call.kind == CallKind::Tool {
            if !entries.turns.iter().any(|(turn, _)| *turn == call.turn) {
                entries.turns.push((call.turn, at));
            }
        } else {
            entries.first.get_or_insert(at);
        }
        entries.by_call.insert(call.clone(), at);
        entries.all.push(LatchedEnding {
            call,
            error: error.clone(),
            answered,
        });
        // Last, so that a reader who sees it finds the entry. Before, readers take no lock.
        self.closed.store(true, Ordering::Release);
    }

    /// Returns whether a tool call was refused, and no tool knows of it that has not ended.
    pub(super) fn is_unmade(&self, call: &LatchedCall) -> bool {
        let entries = lock(&self.entries);
        entries.refused.contains(call) && !entries.dropped.contains(call)
    }

    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the ending that blocks a call. Interrupts of parallel tool calls do not.
    pub(super) fn refusal(&self, call: &LatchedCall) -> Option<Error> {
        let entries = lock(&self.entries);
        let is_tool = call.kind == CallKind::Tool;
        // Tool calls of one turn run in parallel: what one of them ends does not block the others.
        // How the turn ends would depend on which of them stands first.
        let mut turns = entries.turns.iter();
        let other = turns.find(|(turn, _)| !is_tool || *turn != call.turn);
        let at = entries
            .first
            .or(other.map(|(_, at)| *at))
            .or(entries.by_call.get(call).copied())?;
        Some(entries.all.get(at)?.error.clone())
    }

    /// Returns the ending of a finished call: its own, or for an agent any inside it.
    pub(super) fn ending(&self, call: &LatchedCall) -> Option<Error> {
        let entries = lock(&self.entries);
        let at = match call.kind {
            CallKind::Agent => 0,
            _ => *entries.by_call.get(call)?,
        };
        Some(entries.all.get(at)?.error.clone())
    }

    pub(super) fn waits(&self, call: &LatchedCall) -> bool {
        let entries = lock(&self.entries);
        let at = entries.by_call.get(call);
        let own = at.and_then(|&at| entries.all.get(at));
        // A call with a result waits for nothing, although its `after` interrupted the run.
        own.is_some_and(|entry| !entry.answered && entry.error.kind() == ErrorKind::Interrupted)
    }

    pub(super) fn has_asked(&self, id: &str) -> bool {
        if !self.is_closed() {
            return false;
        }
        let entries = lock(&self.entries);
        let mut raised = entries
            .all
            .iter()
            .flat_map(|entry| entry.error.interrupts());
        raised.any(|interrupt| interrupt.id == id)
    }

    pub(super) fn interrupts(&self) -> Vec<Interrupt> {
        let entries = lock(&self.entries);
        let mut waits = Vec::new();
        let mut ids = HashSet::new();
        for LatchedEnding { call, error, .. } in &entries.all {
            for interrupt in error.interrupts() {
                // Endings that leave an agent's layers were raised inside them.
                if !ids.insert(&interrupt.id) && call.kind == CallKind::Agent {
                    continue;
                }
                let mut interrupt = interrupt.clone();
                if call.kind == CallKind::Tool
                    && let Some(tool) = &call.tool
                    && interrupt.tool_call_id.is_none()
                {
                    interrupt.tool_call_id = tool.id().map(str::to_owned);
                    interrupt.call_in_stream = Some(tool.name().in_stream().to_string());
                }
                waits.push(interrupt);
            }
        }
        waits
    }
}
