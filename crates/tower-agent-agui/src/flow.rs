//! A text that is sent piece by piece, as most events of a run are.

use std::sync::Arc;

use tower_agent::stream::{self, EventKind, Invocation};

use crate::conversation::Conversation;
use crate::translate::subagent;

/// The text or reasoning of which the last event was a piece. More pieces of it are sent as they
/// are.
///
/// A text is added up once: while it flows, it is here and not in the messages that the client has,
/// and goes back before anything reads these.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) invocation: Arc<Invocation>,
    /// The id of the message or of the reasoning.
    id: Arc<str>,
    is_thought: bool,
    /// The id of the subagent that it comes from.
    pub(crate) subagent: Option<Arc<str>>,
    /// The text as the client has it.
    text: String,
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
            text: String::new(),
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
            self.text.push_str(text);
        }
        goes_on
    }

    /// Takes the text so far out of the messages that the client has. Returns `false` for a message
    /// that has none.
    pub(crate) fn take_text(&mut self, shown: &mut Conversation) -> bool {
        match shown.text_of(&self.id) {
            Some(text) => {
                self.text = std::mem::take(text);
                true
            }
            None => false,
        }
    }

    /// Puts the text back into the messages that the client has.
    pub(crate) fn put_back(self, shown: &mut Conversation) {
        if let Some(text) = shown.text_of(&self.id) {
            *text = self.text;
        }
    }
}
