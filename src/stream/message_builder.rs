use std::collections::BTreeMap;
use std::sync::Arc;

use super::delta::Delta;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Arguments, Message, Part, ProviderData, Reasoning, Role, Text, ToolCall};

/// Assembles the message of an attempt from its deltas.
#[derive(Debug, Default)]
pub(super) struct MessageBuilder {
    parts: Vec<BuiltPart>,
    /// The position of the last tool call with each index.
    call_positions: BTreeMap<usize, usize>,
}

#[derive(Debug)]
enum BuiltPart {
    Text(String),
    Reasoning(String),
    ToolCall {
        index: usize,
        id: Arc<str>,
        name: Arc<str>,
        arguments: String,
    },
    /// A part that is complete: what follows belongs to another.
    Whole(Part),
}

impl MessageBuilder {
    #[inline]
    pub(super) fn push(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::Text(more) => match self.parts.last_mut() {
                Some(BuiltPart::Text(text)) => text.push_str(more),
                _ => self.parts.push(BuiltPart::Text(more.clone())),
            },
            Delta::Reasoning(more) => match self.parts.last_mut() {
                Some(BuiltPart::Reasoning(text)) => text.push_str(more),
                _ => self.parts.push(BuiltPart::Reasoning(more.clone())),
            },
            Delta::ToolCall { index, id, name } => {
                // The last one, if two start with the same index.
                self.call_positions.insert(*index, self.parts.len());
                self.parts.push(BuiltPart::ToolCall {
                    index: *index,
                    id: id.clone(),
                    name: name.clone(),
                    arguments: String::new(),
                });
            }
            Delta::Arguments { index, json } => self.arguments(*index)?.push_str(json),
        }
        Ok(())
    }

    pub(super) fn push_part(&mut self, part: Part) {
        self.parts.push(BuiltPart::Whole(part));
    }

    /// Completes the last part if it is reasoning, or else adds reasoning without text.
    pub(super) fn end_reasoning(&mut self, provider: ProviderData) {
        let text = match self
            .parts
            .pop_if(|last| matches!(last, BuiltPart::Reasoning(_)))
        {
            Some(BuiltPart::Reasoning(text)) => text,
            _ => String::new(),
        };
        self.parts.push(BuiltPart::Whole(Part::Reasoning(Reasoning {
            text,
            provider,
        })));
    }

    /// Completes the last part if it is text, or else adds the data as text without characters.
    pub(super) fn end_text(&mut self, provider: ProviderData) {
        let text = match self.parts.pop_if(|last| matches!(last, BuiltPart::Text(_))) {
            Some(BuiltPart::Text(text)) => text,
            _ if provider.is_empty() => return,
            _ => String::new(),
        };
        self.parts
            .push(BuiltPart::Whole(Part::Text(Text { text, provider })));
    }

    /// The length of the text so far, in bytes.
    pub(super) fn text_len(&self) -> usize {
        let lengths = self.parts.iter().map(|part| match part {
            BuiltPart::Text(text) | BuiltPart::Reasoning(text) => text.len(),
            BuiltPart::ToolCall {
                name, arguments, ..
            } => name.len() + arguments.len(),
            BuiltPart::Whole(part) => part.text_len(),
        });
        lengths.sum()
    }

    /// The number of parts so far.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    fn arguments(&mut self, wanted: usize) -> Result<&mut String> {
        let part = self
            .call_positions
            .get(&wanted)
            .and_then(|&position| self.parts.get_mut(position));
        match part {
            Some(BuiltPart::ToolCall { arguments, .. }) => Ok(arguments),
            _ => {
                let message = format!("arguments for tool call {wanted}, which has not started");
                Err(Error::new(ErrorKind::Protocol, message))
            }
        }
    }

    /// Returns the same content in as few deltas as possible.
    pub(super) fn deltas(&self) -> Vec<Delta> {
        let mut deltas = Vec::with_capacity(self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                BuiltPart::Text(text) => deltas.push(Delta::Text(text.clone())),
                BuiltPart::Reasoning(text) => deltas.push(Delta::Reasoning(text.clone())),
                BuiltPart::ToolCall {
                    index,
                    id,
                    name,
                    arguments,
                } => {
                    let index = *index;
                    let id = id.clone();
                    let name = name.clone();
                    deltas.push(Delta::ToolCall { index, id, name });
                    deltas.push(Delta::Arguments {
                        index,
                        json: arguments.clone(),
                    });
                }
                BuiltPart::Whole(part) => deltas.extend(of_part(index_of_part(at), part)),
            }
        }
        deltas
    }

    pub(super) fn into_message(self) -> Message {
        Message::new(Role::Assistant, self.parts.into_iter().map(Part::from))
    }
}

impl From<BuiltPart> for Part {
    fn from(part: BuiltPart) -> Self {
        match part {
            BuiltPart::Text(text) => Self::from_text(text),
            BuiltPart::Reasoning(text) => Self::Reasoning(Reasoning {
                text,
                ..Reasoning::default()
            }),
            BuiltPart::ToolCall {
                id,
                name,
                arguments,
                ..
            } => Self::ToolCall(ToolCall::from_text(id, name, arguments)),
            BuiltPart::Whole(part) => part,
        }
    }
}

/// Returns the deltas of a message that was not streamed.
pub(super) fn deltas(message: &Message) -> Vec<Delta> {
    let parts = message.parts().iter().enumerate();
    parts
        .flat_map(|(index, part)| of_part(index, part))
        .collect()
}

/// Returns the deltas of a part. `index` is that of a tool call.
pub(super) fn of_part(index: usize, part: &Part) -> impl Iterator<Item = Delta> + use<> {
    let (first, second) = match part {
        Part::Text(text) => (Some(Delta::Text(text.text.clone())), None),
        Part::Reasoning(reasoning) => (Some(Delta::Reasoning(reasoning.text.clone())), None),
        Part::ToolCall(call) => {
            let id = call.id.clone();
            let name = call.name.clone();
            let json = call.arguments.as_str().to_owned();
            (
                Some(Delta::ToolCall { index, id, name }),
                Some(Delta::Arguments { index, json }),
            )
        }
        // They have no deltas.
        Part::Image(_)
        | Part::Audio(_)
        | Part::Document(_)
        | Part::ToolResult(_)
        | Part::Provider(_) => (None, None),
    };
    first.into_iter().chain(second)
}

/// Returns the index of the tool call that is the whole part at `at`. Counted from the end of the
/// range, since providers count theirs from its start.
pub(super) const fn index_of_part(at: usize) -> usize {
    usize::MAX - at
}

/// Returns whether two messages have the same deltas.
pub(super) fn shows_same(one: &Message, other: &Message) -> bool {
    if one.is_clone_of(other) {
        return true;
    }
    fn words(message: &Message) -> impl Iterator<Item = &str> {
        message.parts().iter().filter_map(Part::as_text)
    }
    fn thoughts(message: &Message) -> impl Iterator<Item = &str> {
        message.parts().iter().filter_map(|part| match part {
            Part::Reasoning(reasoning) => Some(&*reasoning.text),
            _ => None,
        })
    }
    fn calls(message: &Message) -> impl Iterator<Item = (&str, &str, &Arguments)> {
        message
            .tool_calls()
            .map(|call| (&*call.id, &*call.name, &call.arguments))
    }
    // Provider data is left out: the consumer receives it apart from the deltas.
    is_same_text(words(one), words(other))
        && is_same_text(thoughts(one), thoughts(other))
        && calls(one).eq(calls(other))
}

/// Returns whether two texts are equal, however each is divided.
fn is_same_text<'a>(
    mut one: impl Iterator<Item = &'a str>,
    mut other: impl Iterator<Item = &'a str>,
) -> bool {
    let mut left: &[u8] = &[];
    let mut right: &[u8] = &[];
    loop {
        if left.is_empty()
            && let Some(more) = one.next()
        {
            left = more.as_bytes();
        } else if right.is_empty()
            && let Some(more) = other.next()
        {
            right = more.as_bytes();
        } else {
            let length = left.len().min(right.len());
            let (left_start, left_end) = left.split_at(length);
            let (right_start, right_end) = right.split_at(length);
            // One of them is at its end, or they differ: equal only if both are at their end.
            if length == 0 || left_start != right_start {
                return left == right;
            }
            left = left_end;
            right = right_end;
        }
    }
}

/// Returns whether a message has any deltas.
pub(super) fn is_visible(message: &Message) -> bool {
    message.parts().iter().any(|part| match part {
        Part::Text(text) => !text.text.is_empty(),
        Part::ToolCall(_) => true,
        Part::Reasoning(reasoning) => !reasoning.text.is_empty(),
        Part::Image(_)
        | Part::Audio(_)
        | Part::Document(_)
        | Part::ToolResult(_)
        | Part::Provider(_) => false,
    })
}
