use std::collections::BTreeMap;
use std::sync::Arc;

use super::delta::Delta;
use super::piece::Piece as Added;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Arguments, Message, Part, ProviderData, Reasoning, Role, Text, ToolCall};

/// Assembles the message of an attempt from its deltas.
#[derive(Debug, Default)]
pub(super) struct MessageBuilder {
    pieces: Vec<Piece>,
    /// The position of the last tool call with each index.
    places: BTreeMap<usize, usize>,
}

#[derive(Debug)]
enum Piece {
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
            Delta::Text(more) => match self.pieces.last_mut() {
                Some(Piece::Text(text)) => text.push_str(more),
                _ => self.pieces.push(Piece::Text(more.clone())),
            },
            Delta::Reasoning(more) => match self.pieces.last_mut() {
                Some(Piece::Reasoning(text)) => text.push_str(more),
                _ => self.pieces.push(Piece::Reasoning(more.clone())),
            },
            Delta::ToolCall { index, id, name } => {
                let index = *index;
                let id = id.clone();
                let name = name.clone();
                // The last one, if two start with the same index.
                self.places.insert(index, self.pieces.len());
                let arguments = String::new();
                self.pieces.push(Piece::ToolCall {
                    index,
                    id,
                    name,
                    arguments,
                });
            }
            Delta::Arguments { index, json } => self.arguments(*index)?.push_str(json),
        }
        Ok(())
    }

    /// Adds a piece that nobody else needs.
    pub(super) fn add(&mut self, piece: Added) -> Result<()> {
        match piece {
            Added::Delta(Delta::Text(text))
                if !matches!(self.pieces.last(), Some(Piece::Text(_))) =>
            {
                self.pieces.push(Piece::Text(text));
            }
            Added::Delta(Delta::Arguments { index, json }) => match self.arguments(index)? {
                none if none.is_empty() => *none = json,
                arguments => arguments.push_str(&json),
            },
            Added::Delta(delta) => self.push(&delta)?,
            Added::Part(part) => self.push_part(part),
            Added::ReasoningEnd(provider) => self.end_reasoning(provider),
            Added::TextEnd(provider) => self.end_text(provider),
        }
        Ok(())
    }

    pub(super) fn push_part(&mut self, part: Part) {
        self.pieces.push(Piece::Whole(part));
    }

    /// Completes the last part if it is reasoning, or else adds reasoning without text.
    pub(super) fn end_reasoning(&mut self, provider: ProviderData) {
        let text = match self
            .pieces
            .pop_if(|last| matches!(last, Piece::Reasoning(_)))
        {
            Some(Piece::Reasoning(text)) => text,
            _ => String::new(),
        };
        self.pieces
            .push(Piece::Whole(Part::Reasoning(Reasoning { text, provider })));
    }

    /// Completes the last part if it is text, or else adds the data as text without characters.
    pub(super) fn end_text(&mut self, provider: ProviderData) {
        let text = match self.pieces.pop_if(|last| matches!(last, Piece::Text(_))) {
            Some(Piece::Text(text)) => text,
            _ if provider.is_empty() => return,
            _ => String::new(),
        };
        self.pieces
            .push(Piece::Whole(Part::Text(Text { text, provider })));
    }

    /// The number of parts so far.
    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    fn arguments(&mut self, wanted: usize) -> Result<&mut String> {
        let place = self
            .places
            .get(&wanted)
            .and_then(|&place| self.pieces.get_mut(place));
        match place {
            Some(Piece::ToolCall { arguments, .. }) => Ok(arguments),
            _ => {
                let message = format!("arguments for tool call {wanted}, which has not started");
                Err(Error::new(ErrorKind::Protocol, message))
            }
        }
    }

    /// Returns the same content in as few deltas as possible.
    pub(super) fn deltas(&self) -> Vec<Delta> {
        let mut deltas = Vec::with_capacity(self.pieces.len());
        for (at, piece) in self.pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => deltas.push(Delta::Text(text.clone())),
                Piece::Reasoning(text) => deltas.push(Delta::Reasoning(text.clone())),
                Piece::ToolCall {
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
                Piece::Whole(part) => deltas.extend(of_part(index_of_part(at), part)),
            }
        }
        deltas
    }

    pub(super) fn into_message(self) -> Message {
        Message::new(Role::Assistant, self.pieces.into_iter().map(Part::from))
    }
}

impl From<Piece> for Part {
    fn from(piece: Piece) -> Self {
        match piece {
            Piece::Text(text) => Self::Text(Text {
                text,
                ..Text::default()
            }),
            Piece::Reasoning(text) => Self::Reasoning(Reasoning {
                text,
                ..Reasoning::default()
            }),
            Piece::ToolCall {
                id,
                name,
                arguments,
                ..
            } => Self::ToolCall(ToolCall::from_text(id, name, arguments)),
            Piece::Whole(part) => part,
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
        message.parts().iter().filter_map(as_thought)
    }
    fn calls(message: &Message) -> impl Iterator<Item = (&str, &str, &Arguments)> {
        message
            .tool_calls()
            .map(|call| (&*call.id, &*call.name, &call.arguments))
    }
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
            let ((of_left, in_left), (of_right, in_right)) =
                (left.split_at(length), right.split_at(length));
            if length == 0 || of_left != of_right {
                return left == right;
            }
            (left, right) = (in_left, in_right);
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

fn as_thought(part: &Part) -> Option<&str> {
    match part {
        Part::Reasoning(reasoning) => Some(&reasoning.text),
        _ => None,
    }
}
