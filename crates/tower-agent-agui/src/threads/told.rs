use std::collections::HashMap;
use std::sync::Arc;

use tower_agent::message::{Message, Part};
use tower_agent::stream::{Event, EventKind, Invocation};

/// The ids of a run's messages in its stream, to find them in the transcript, which has no ids.
#[derive(Debug, Default)]
pub(super) struct Told {
    messages: Vec<Named>,
    places: HashMap<Arc<str>, usize>,
    last: Option<(Arc<str>, usize)>,
}

#[derive(Debug)]
struct Named {
    id: Arc<str>,
    text: Hash,
    calls: Vec<Arc<str>>,
    is_void: bool,
}

/// A hash of a text, by eight bytes a step, which hashes pieces like the whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hash {
    hash: u64,
    /// The bytes of the incomplete step.
    begun: u64,
    length: usize,
}

impl Hash {
    fn add(&mut self, text: &str) {
        let begun = (8 - self.length % 8) % 8;
        let (first, rest) = text.as_bytes().split_at(begun.min(text.len()));
        let (steps, last) = rest.as_chunks();
        first.iter().for_each(|byte| self.byte(*byte));
        steps
            .iter()
            .for_each(|step| self.step(u64::from_be_bytes(*step)));
        self.length += rest.len() - last.len();
        last.iter().for_each(|byte| self.byte(*byte));
    }

    fn byte(&mut self, byte: u8) {
        self.begun = self.begun << 8 | u64::from(byte);
        self.length += 1;
        if self.length.is_multiple_of(8) {
            let step = std::mem::take(&mut self.begun);
            self.step(step);
        }
    }

    /// Rotates and multiplies, as rustc's hash does.
    fn step(&mut self, step: u64) {
        self.hash = (self.hash.rotate_left(5) ^ step).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Told {
    /// Notes an event of the stream.
    pub(super) fn note(&mut self, event: &Event) {
        let message = match &event.kind {
            EventKind::TextDelta { message, text } => {
                return self.note_text(&event.invocation, message, text);
            }
            EventKind::TextStart { message }
            | EventKind::ReasoningStart { message, .. }
            | EventKind::ToolCallStart { message, .. }
            | EventKind::AttemptDiscarded { message }
            | EventKind::ResponseReplaced { message } => message,
            _ => return,
        };
        if event.invocation.conversation().number > 1 {
            return;
        }
        let named = self.named(message);
        match &event.kind {
            EventKind::ToolCallStart { id, .. } => named.calls.push(id.clone()),
            EventKind::AttemptDiscarded { .. } | EventKind::ResponseReplaced { .. } => {
                named.is_void = true;
            }
            _ => {}
        }
    }

    /// Notes more of a message's text.
    pub(super) fn note_text(&mut self, invocation: &Invocation, message: &Arc<str>, text: &str) {
        if invocation.conversation().number <= 1 {
            self.named(message).text.add(text);
        }
    }

    fn named(&mut self, id: &Arc<str>) -> &mut Named {
        let at = match &self.last {
            Some((last, at)) if Arc::ptr_eq(last, id) => *at,
            _ => {
                let at = *self.places.entry(id.clone()).or_insert(self.messages.len());
                self.last = Some((id.clone(), at));
                at
            }
        };
        if at == self.messages.len() {
            let (text, calls) = (Hash::default(), Vec::new());
            self.messages.push(Named {
                id: id.clone(),
                text,
                calls,
                is_void: false,
            });
        }
        &mut self.messages[at]
    }

    /// Returns the ids of these messages, each used once.
    pub(super) fn names<'a>(&self, messages: impl Iterator<Item = &'a Message>) -> Names<'_> {
        let mut used = vec![false; self.messages.len()];
        let mut names = Vec::new();
        // They are nearly always in the order of the stream.
        let mut from = 0;
        for message in messages {
            let mut text = Hash::default();
            message
                .parts()
                .iter()
                .filter_map(Part::as_text)
                .for_each(|it| text.add(it));
            let is_it = |at: &usize| {
                let named = &self.messages[*at];
                let calls = message.tool_calls().map(|call| &call.id);
                !used[*at] && !named.is_void && named.text == text && named.calls.iter().eq(calls)
            };
            let found = (from..used.len())
                .chain(0..from.min(used.len()))
                .find(is_it);
            if let Some(at) = found {
                used[at] = true;
                from = at + 1;
            }
            names.push(found.map(|at| self.messages[at].id.clone()));
        }
        let rest = self.messages.iter().zip(used);
        let rest = rest
            .filter(|(named, used)| !used && !named.is_void)
            .map(|(named, _)| &named.id);
        Names {
            names,
            rest: rest.collect(),
        }
    }
}

pub(super) struct Names<'a> {
    /// One for each message, if it was streamed.
    pub(super) names: Vec<Option<Arc<str>>>,
    /// The ids of messages that were streamed, not discarded, and are not in the transcript.
    pub(super) rest: Vec<&'a Arc<str>>,
}
