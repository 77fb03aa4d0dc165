use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::call_kind::CallKind;
use crate::conversation::CallName;
use crate::lock::lock;
use crate::message::{Message, Part, Usage};

/// The account of an agent: what it has used, said and tried without success.
#[derive(Default)]
pub(crate) struct Tally {
    used: Mutex<Used>,
    /// The messages with a text.
    texts: Mutex<Vec<Message>>,
    /// The number of texts. Outside the lock, since every turn asks.
    text_count: AtomicUsize,
    /// The attempts that have failed. Counted only if somebody is told.
    failures: Mutex<Failures>,
}

#[derive(Clone, Copy, Default)]
struct Used {
    /// By the calls of the agent itself.
    own: Usage,
    /// By the agents inside its calls, which tell of it themselves.
    inside: Usage,
    /// The rest of which the listeners were told.
    told: Usage,
    /// The agent tells of it when its turn goes on or ends.
    is_in_turn: bool,
}

impl Used {
    fn tell(&mut self) -> Usage {
        self.own - std::mem::replace(&mut self.told, self.own)
    }
}

#[derive(Default)]
struct Failures {
    counts: HashMap<TriedCall, u32>,
    /// The tokens that the agent had used by the last failure, or by the start of the turn.
    usage: Usage,
}

/// A call of an agent that may be attempted more than once.
#[derive(PartialEq, Eq, Hash)]
enum TriedCall {
    Agent,
    /// The model call of the turn.
    Model,
    /// A tool call, by the name that is unique in the conversation.
    Tool(CallName),
}

impl TriedCall {
    fn new(kind: CallKind, tool: Option<CallName>) -> Self {
        match (kind, tool) {
            (CallKind::Agent, _) => Self::Agent,
            (_, Some(tool)) => Self::Tool(tool),
            (_, None) => Self::Model,
        }
    }
}

impl Tally {
    pub(crate) fn usage(&self) -> Usage {
        let used = lock(&self.used);
        used.own + used.inside
    }

    #[inline]
    pub(super) fn add_usage(&self, usage: Usage, is_own: bool) {
        let mut used = lock(&self.used);
        if is_own {
            used.own += usage;
        } else {
            used.inside += usage;
        }
    }

    /// Returns what the agent's own calls have used since this was asked last.
    pub(crate) fn untold_usage(&self) -> Usage {
        lock(&self.used).tell()
    }

    /// The same, unless a turn runs that will ask.
    pub(super) fn stray_usage(&self) -> Usage {
        let mut used = lock(&self.used);
        if used.is_in_turn {
            return Usage::default();
        }
        used.tell()
    }

    pub(crate) fn set_in_turn(&self, is_in_turn: bool) {
        lock(&self.used).is_in_turn = is_in_turn;
    }

    /// Begins to count the attempts at the model call of another turn.
    pub(crate) fn begin_attempts(&self) {
        let usage = lock(&self.used).own;
        let mut failures = lock(&self.failures);
        failures.counts.remove(&TriedCall::Model);
        failures.usage = usage;
    }

    /// Returns the number of attempts that have failed at a call: at the agent, at this tool call,
    /// or at the model call of the turn.
    pub(crate) fn failed_attempts(&self, kind: CallKind, tool: Option<CallName>) -> u32 {
        let counts = &lock(&self.failures).counts;
        counts
            .get(&TriedCall::new(kind, tool))
            .copied()
            .unwrap_or_default()
    }

    /// Counts a failed attempt; returns its number, and what a model call has used in it.
    pub(crate) fn count_failure(&self, kind: CallKind, tool: Option<CallName>) -> (u32, Usage) {
        let call = TriedCall::new(kind, tool);
        let usage = lock(&self.used).own;
        let mut failures = lock(&self.failures);
        let used = match call {
            // As a difference: layers inside may have made several calls for one attempt.
            TriedCall::Model => usage - std::mem::replace(&mut failures.usage, usage),
            // Calls of a turn run at the same time, and the difference would be that of all.
            TriedCall::Agent | TriedCall::Tool(_) => Usage::default(),
        };
        let count = failures.counts.entry(call).or_default();
        *count += 1;
        (*count - 1, used)
    }

    /// Stores the model's text for later turns.
    pub(crate) fn push_text(&self, message: &Message) {
        let mut parts = message.parts().iter().filter_map(Part::as_text);
        if parts.any(|text| !text.is_empty()) {
            let mut texts = lock(&self.texts);
            texts.push(message.clone());
            self.text_count.store(texts.len(), Ordering::Release);
        }
    }

    pub(super) fn texts(&self, range: Range<usize>) -> Vec<Arc<str>> {
        let texts = lock(&self.texts).get(range).unwrap_or_default().to_vec();
        texts.iter().map(|message| message.text().into()).collect()
    }

    pub(super) fn text_count(&self) -> usize {
        self.text_count.load(Ordering::Acquire)
    }
}
