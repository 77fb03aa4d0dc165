use std::fmt;
use std::sync::Arc;

use crate::message::{IdPart, Message, MessageId, push_number};

/// The name of a tool call: the message that contains it, and its place among the calls there. The
/// provider's id does not tell calls apart, since some providers repeat theirs in every turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CallName {
    pub(crate) message: MessageId,
    pub(crate) index: usize,
}

impl CallName {
    pub(crate) fn new(message: &Message, index: usize) -> Self {
        // Every message of a running conversation has an id.
        let id = message.id().cloned();
        Self {
            message: id.unwrap_or_else(|| MessageId::from("")),
            index,
        }
    }

    pub(crate) fn in_stream(&self) -> Arc<str> {
        self.message.tool_call(self.index)
    }

    pub(crate) fn push_to(&self, path: &mut String) {
        match self.message.number() {
            // Attempts at a message have one number, since only one of them is in a conversation.
            Some(number) => {
                path.push('m');
                push_number(path, number);
            }
            None => {
                // An application has chosen the id: escaped, it cannot be taken for two steps.
                for character in self.message.to_shared().chars() {
                    match character {
                        '%' => path.push_str("%25"),
                        '/' => path.push_str("%2F"),
                        ' ' => path.push_str("%20"),
                        other => path.push(other),
                    }
                }
            }
        }
        path.push('.');
        push_number(path, self.index);
    }

    /// Gives an id to the call's result, unless it has one.
    pub(crate) fn identify_result(&self, result: &mut Message) {
        self.identify(std::iter::once(result));
    }

    /// Gives ids to the messages that the call has brought, the result first.
    pub(crate) fn identify<'a>(&self, messages: impl Iterator<Item = &'a mut Message>) {
        let mut others = 0;
        for message in messages {
            if message.id().is_some() {
                continue;
            }
            let number = if message.tool_results().next().is_some() {
                0
            } else {
                others += 1;
                others
            };
            message.set_id(self.message.part(IdPart::Result {
                call: self.index,
                number,
            }));
        }
    }
}

/// The name as a step of a path, and as a part of a key.
impl fmt::Display for CallName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = String::new();
        self.push_to(&mut name);
        f.write_str(&name)
    }
}
