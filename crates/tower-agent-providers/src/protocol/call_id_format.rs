use std::borrow::Cow;

use serde_json::{Map, Value};

use super::hash::fnv1a;
use crate::word::is_word;
use tower_agent::message::{Message, Messages, Part, ToolCall, ToolResult};

/// The ids of tool calls that a provider accepts.
///
/// A conversation that another provider began has that provider's ids. An id that would be rejected
/// is written differently, in the call and in its result alike. The provider's own ids go back as
/// they came, whatever they are: some servers keep data in them.
#[derive(Debug)]
pub(crate) struct CallIdFormat {
    /// The key of the provider's data.
    pub(crate) provider: &'static str,
    /// The field of a call that contains its id.
    pub(crate) field: &'static str,
    /// The maximum length.
    pub(crate) max: usize,
}

impl CallIdFormat {
    /// Marks the ids of a response as the provider's own, where it makes a difference.
    pub(crate) fn keep(&self, message: &mut Message) {
        // Asking for mutable parts copies them if they are shared, and most ids are accepted.
        if message.tool_calls().all(|call| self.accepts(&call.id)) {
            return;
        }
        for part in message.parts_mut() {
            match part {
                Part::ToolCall(call) if !self.accepts(&call.id) => {
                    let fields = call.provider.get(self.provider).and_then(Value::as_object);
                    let mut fields = fields.cloned().unwrap_or_default();
                    fields.insert(self.field.into(), (*call.id).into());
                    call.provider.set(self.provider, Value::Object(fields));
                }
                _ => {}
            }
        }
    }

    /// Returns the id to write for a call. Write the provider's data over it.
    pub(crate) fn of_call<'a>(&self, call: &'a ToolCall) -> Cow<'a, str> {
        self.accepted(&call.id)
    }

    /// Returns the id to write for a result in the message at `index`.
    pub(crate) fn of_result<'a>(
        &self,
        result: &'a ToolResult,
        messages: &'a Messages,
        index: usize,
    ) -> Cow<'a, str> {
        if self.accepts(&result.call_id) {
            return Cow::Borrowed(&result.call_id);
        }
        let before = (0..=index).rev().filter_map(|index| messages.get(index));
        let mut calls = before.flat_map(Message::tool_calls);
        // The latest call of that id: an id may be used again in a later turn.
        let call = calls.find(|call| call.id == result.call_id);
        match call.and_then(|call| self.own_id(call)) {
            Some(id) => Cow::Borrowed(id),
            None => self.accepted(&result.call_id),
        }
    }

    fn own_id<'a>(&self, call: &'a ToolCall) -> Option<&'a str> {
        let fields: &Map<String, Value> = call.provider.get(self.provider)?.as_object()?;
        fields.get(self.field)?.as_str()
    }

    fn accepts(&self, id: &str) -> bool {
        id.len() <= self.max && id.bytes().all(is_word)
    }

    /// Returns the id, or else its beginning and a hash of the whole, so that two ids remain two.
    fn accepted<'a>(&self, id: &'a str) -> Cow<'a, str> {
        if self.accepts(id) {
            return Cow::Borrowed(id);
        }
        let hash = format!("_{:016x}", fnv1a(id));
        let start = id.bytes().take(self.max.saturating_sub(hash.len()));
        let start = start.map(|byte| if is_word(byte) { byte.into() } else { '_' });
        Cow::Owned(start.chain(hash.chars()).collect())
    }
}
