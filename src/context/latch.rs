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
    /// The call has its answer all the same: an `after` of it raised this.
    answered: bool,
}

/// One call of an agent.
#[derive(PartialEq)]
pub(super) struct Call {
    pub(super) kind: CallKind,
    pub(super) turn: u32,
    pub(super) tool: Option<Arc<str>>,
}

impl Latch {
    pub(super) fn set(&self, call: Call, error: &Error, answered: bool) {
        let mut entries = lock(&self.entries);
        if !entries.iter().any(|entry| entry.call == call) {
            entries.push(Entry { call, error: error.clone(), answered });
            self.closed.store(true, Ordering::Release);
        }
    }

    /// Before a call: anything that was latched refuses it, but for an interrupt raised by
    /// another tool call of the same turn.
    pub(super) fn refusal(&self, call: &Call) -> Option<Error> {
        self.find(|entry| {
            let beside = call.kind == CallKind::Tool
                && entry.call.kind == CallKind::Tool
                && entry.call.turn == call.turn
                && entry.call.tool != call.tool
                && entry.error.kind() == ErrorKind::Interrupted;
            !beside
        })
    }

    /// After a call: what it raised itself, or for an agent what anything in it raised.
    pub(super) fn ending(&self, call: &Call) -> Option<Error> {
        self.find(|entry| call.kind == CallKind::Agent || entry.call == *call)
    }

    /// Whether a call waits for somebody before it can be answered.
    pub(super) fn waits(&self, call: &Call) -> bool {
        let waits = |entry: &Entry| !entry.answered && entry.error.kind() == ErrorKind::Interrupted;
        self.find(|entry| entry.call == *call && waits(entry)).is_some()
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
