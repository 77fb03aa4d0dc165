//! A text that is sent piece by piece, as most events of a run are.

use std::sync::Arc;

use tower_agent::stream::{self, EventKind, Invocation};

use crate::translate::subagent;
use crate::wire::Event;

/// How many bytes may wait to be noted.
const LONG: usize = 4 << 10;

/// The text or reasoning of which the last event was a piece. More pieces of it are sent as they
/// are, and noted all at once, before anything reads what the client has.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) invocation: Arc<Invocation>,
    /// The id of the message or of the reasoning.
    id: Arc<str>,
    is_thought: bool,
    /// The id of the subagent that it comes from.
    pub(crate) subagent: Option<Arc<str>>,
    /// The text that was sent and is not yet noted.
    unnoted: String,
}

impl Flow {
    /// Returns the flow of an event, if it is a piece of text or reasoning.
    pub(crate) fn of(event: &stream::Event) -> Option<Self> {
        let (id, is_thought) = match &event.kind {
            EventKind::TextDelta { message, .. } => (message, false),
            EventKind::ReasoningDelta { id, .. } => (id, true),
            _ => return None,
        };
        let invocation = event.invocation.clone();
        let id = id.clone();
        let subagent = subagent(&invocation).cloned();
        Some(Self {
            invocation,
            id,
            is_thought,
            subagent,
            unnoted: String::new(),
        })
    }

    /// Takes the text of the event, if it is the next piece.
    #[inline]
    pub(crate) fn takes(&mut self, invocation: &Arc<Invocation>, kind: &EventKind) -> bool {
        let (id, text, is_thought) = match kind {
            EventKind::TextDelta { message, text } => (message, text, false),
            EventKind::ReasoningDelta { id, text } => (id, text, true),
            _ => return false,
        };
        // By address: the pieces of a text share their id, and this runs once for each of them.
        let goes_on = Arc::ptr_eq(id, &self.id)
            && is_thought == self.is_thought
            && Arc::ptr_eq(invocation, &self.invocation);
        if goes_on {
            self.unnoted.push_str(text);
        }
        goes_on
    }

    #[inline]
    pub(crate) fn is_long(&self) -> bool {
        self.unnoted.len() > LONG
    }

    /// Takes the text that is not yet noted, as one event.
    pub(crate) fn take_unnoted(&mut self) -> Option<Event> {
        if self.unnoted.is_empty() {
            return None;
        }
        let id = self.id.clone();
        let text = std::mem::take(&mut self.unnoted);
        Some(if self.is_thought {
            Event::reasoning_message_content(id, text)
        } else {
            Event::text_content(id, text)
        })
    }
}
