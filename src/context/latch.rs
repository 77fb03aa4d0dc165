use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::call::CallKind;
use crate::error::{Error, ErrorKind, Pending};
use crate::lock::lock;

/// The interrupts and ends of one agent, by the call that raised them.
///
/// Kept per call, because the calls beside an interrupted one in the same turn still finish.
#[derive(Default)]
pub(super) struct Latch {
    closed: AtomicBool,
    entries: Mutex<Vec<Entry>>,
}

struct Entry {
    call: Call,
    error: Error,
}

#[derive(PartialEq)]
struct Call {
    kind: CallKind,
    turn: u32,
    tool: Option<Arc<str>>,
}

impl Latch {
    pub(super) fn set(&self, kind: CallKind, turn: u32, tool: Option<&Arc<str>>, error: &Error) {
        let call = Call { kind, turn, tool: tool.cloned() };
        let mut entries = lock(&self.entries);
        if !entries.iter().any(|entry| entry.call == call) {
            entries.push(Entry { call, error: error.clone() });
            self.closed.store(true, Ordering::Release);
        }
    }

    /// Before a call: anything that was latched refuses it, but for an interrupt raised by
    /// another tool call of the same turn.
    pub(super) fn refusal(
        &self,
        kind: CallKind,
        turn: u32,
        tool: Option<&Arc<str>>,
    ) -> Option<Error> {
        self.find(|entry| {
            let beside = kind == CallKind::Tool
                && entry.call.kind == CallKind::Tool
                && entry.call.turn == turn
                && entry.call.tool.as_ref() != tool
                && entry.error.kind() == ErrorKind::Interrupted;
            !beside
        })
    }

    /// After a call: what it raised itself, or for an agent what anything in it raised.
    pub(super) fn ending(
        &self,
        kind: CallKind,
        turn: u32,
        tool: Option<&Arc<str>>,
    ) -> Option<Error> {
        self.find(|entry| {
            kind == CallKind::Agent
                || (entry.call.kind == kind
                    && entry.call.turn == turn
                    && entry.call.tool.as_ref() == tool)
        })
    }

    pub(super) fn pending(&self) -> Vec<Pending> {
        let entries = lock(&self.entries);
        let waits = entries.iter().flat_map(|entry| {
            entry.error.pending().iter().cloned().map(|mut pending| {
                if entry.call.kind == CallKind::Tool && pending.tool_call_id.is_none() {
                    pending.tool_call_id = entry.call.tool.as_deref().map(str::to_owned);
                }
                pending
            })
        });
        waits.collect()
    }

    fn find(&self, wanted: impl Fn(&Entry) -> bool) -> Option<Error> {
        if !self.closed.load(Ordering::Acquire) {
            return None;
        }
        lock(&self.entries).iter().find(|entry| wanted(entry)).map(|entry| entry.error.clone())
    }
}
