use std::collections::BTreeMap;
use std::sync::Arc;

use super::delta::Delta;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Arguments, Message, Part, ProviderData, Reasoning, Role, Text, ToolCall};

/// Assembles the message of an attempt from its deltas.
#[derive(Debug, Default)]
pub(super) struct MessageBuilder {
    parts: Vec<BuiltPart>,
    /// The last part goes on with further deltas of its kind.
    is_open: bool,
    /// The position of the last tool call with each index.
    call_positions: BTreeMap<usize, usize>,
}

#[derive(Debug)]
enum BuiltPart {
    Part(Part),
    ToolCall {
        index: usize,
        id: Arc<str>,
        name: Arc<str>,
        arguments: String,
    },
}

impl MessageBuilder {
    #[inline]
    pub(super) fn push(&mut self, delta: &Delta) -> Result<()> {
        match delta {
            Delta::Text(more) => match self.parts.last_mut() {
                Some(BuiltPart::Part(Part::Text(text))) if self.is_open => text.text.push_str(more),
                _ => self.push_part(Part::from_text(more), true),
            },
            Delta::Reasoning(more) => match self.parts.last_mut() {
                Some(BuiltPart::Part(Part::Reasoning(part))) if self.is_open => {
                    part.text.push_str(more);
                }
                _ => self.push_part(Part::reasoning(more), true),
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

    pub(super) fn push_part(&mut self, part: Part, is_open: bool) {
        self.parts.push(BuiltPart::Part(part));
        self.is_open = is_open;
    }

    /// Completes the last part if it is reasoning, or else adds reasoning without text.
    pub(super) fn end_reasoning(&mut self, provider: ProviderData) {
        match self.parts.last_mut() {
            Some(BuiltPart::Part(Part::Reasoning(part))) if self.is_open => {
                part.provider = provider;
                self.is_open = false;
            }
            _ => {
                let text = String::new();
                self.push_part(Part::Reasoning(Reasoning { text, provider }), false);
            }
        }
    }

    /// Completes the last part if it is text, or else adds the data as text without characters.
    pub(super) fn end_text(&mut self, provider: ProviderData) {
        match self.parts.last_mut() {
            Some(BuiltPart::Part(Part::Text(part))) if self.is_open => {
                part.provider = provider;
                self.is_open = false;
            }
            _ if provider.is_empty() => {}
            _ => {
                let text = String::new();
                self.push_part(Part::Text(Text { text, provider }), false);
            }
        }
    }

    /// The length of the text so far, in bytes.
    pub(super) fn text_len(&self) -> usize {
        let lengths = self.parts.iter().map(|part| match part {
            BuiltPart::Part(part) => part.text_len(),
            BuiltPart::ToolCall {
                name, arguments, ..
            } => name.len() + arguments.len(),
        });
        lengths.sum()
    }

    /// The number of parts so far.
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    fn arguments(&mut self, wanted: usize) -> Result<&mut String> {
        if let Some(&position) = self.call_positions.get(&wanted)
            && let Some(BuiltPart::ToolCall { arguments, .. }) = self.parts.get_mut(position)
        {
            return Ok(arguments);
        }
        let message = format!("arguments for tool call {wanted}, which has not started");
        Err(Error::new(ErrorKind::Protocol, message))
    }

    /// Returns the same content in as few deltas as possible.
    pub(super) fn deltas(&self) -> Vec<Delta> {
        let mut deltas = Vec::with_capacity(self.parts.len());
        for (at, part) in self.parts.iter().enumerate() {
            match part {
                BuiltPart::Part(part) => deltas.extend(of_part(index_of_part(at), part)),
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
            BuiltPart::Part(part) => part,
            BuiltPart::ToolCall {
                id,
                name,
                arguments,
                ..
            } => Self::ToolCall(ToolCall::from_text(id, name, arguments)),
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

/// Returns the index of a whole call: from the end, since providers count from the start.
pub(super) const fn index_of_part(at: usize) -> usize {
    usize::MAX - at
}

/// Returns whether two messages have the same deltas.
pub(super) fn shows_same(one: &Message, other: &Message) -> bool {
    // Usually they are clones, of which nothing is read.
    one.is_clone_of(other) || shown(one) == shown(other)
}

/// Returns the text, the reasoning and the calls, however the parts are divided. Provider data is
/// left out: the consumer receives it apart from the deltas.
fn shown(message: &Message) -> (String, String, Vec<(&str, &str, &Arguments)>) {
    let reasoning = message.parts().iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => Some(&*reasoning.text),
        _ => None,
    });
    let calls = message
        .tool_calls()
        .map(|call| (&*call.id, &*call.name, &call.arguments));
    (message.text(), reasoning.collect(), calls.collect())
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
