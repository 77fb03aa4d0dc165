//! A model call as a probe between two wrappers sees it.

use std::sync::Arc;

use super::settings::Settings;
use crate::message::{Message, Messages, Metadata, Part, Usage};
use crate::stream::{FieldChange, is_same};
use crate::tool::ToolDeclaration;

/// The part of a request that a model sees. It shares everything.
pub(crate) struct SeenModelRequest {
    pub(super) instructions: Option<Arc<str>>,
    pub(super) messages: Messages,
    pub(super) tools: Arc<Vec<Arc<ToolDeclaration>>>,
    pub(super) settings: Arc<Settings>,
}

impl SeenModelRequest {
    /// Adds the fields that a later request has changed.
    pub(crate) fn changes(&self, later: &Self, changes: &mut Vec<FieldChange>) {
        let mut note = |field, before, after| changes.push(FieldChange::new(field, before, after));
        let [text, later_text] = [&self.instructions, &later.instructions];
        if text != later_text {
            let size = |text: &Option<Arc<str>>| text.as_ref().map(|text| text.len());
            note("instructions", size(text), size(later_text));
        }
        if self.messages != later.messages {
            let [before, after] = [self.messages.len(), later.messages.len()];
            note("messages", Some(before), Some(after));
        }
        if !Arc::ptr_eq(&self.tools, &later.tools) {
            changed_tools(&self.tools, &later.tools, changes);
        }
        changed_settings(&self.settings, &later.settings, changes);
    }

    /// Returns the text of a changed field, here and in a later request.
    pub(crate) fn texts(&self, later: &Self, field: &str) -> Option<[String; 2]> {
        match field {
            "instructions" => {
                let text = |seen: &Self| seen.instructions.as_deref().unwrap_or_default().into();
                Some([text(self), text(later)])
            }
            "messages" => Some(texts_of_messages(
                self.messages.iter(),
                later.messages.iter(),
            )),
            _ => None,
        }
    }
}

/// Returns the texts of those messages that are not the same, each behind its role.
pub(crate) fn texts_of_messages<'a>(
    earlier: impl Iterator<Item = &'a Message> + Clone,
    later: impl Iterator<Item = &'a Message> + Clone,
) -> [String; 2] {
    let pairs = earlier.clone().zip(later.clone());
    let known = pairs.take_while(|(one, other)| one == other).count();
    let text = |message: &Message| {
        let role = message.role();
        let parts = message.parts().iter().filter_map(words);
        parts
            .map(|words| format!("{role:?}: {words}\n"))
            .collect::<String>()
    };
    [
        earlier.skip(known).map(text).collect(),
        later.skip(known).map(text).collect(),
    ]
}

/// Returns the words of a part. Media and what a provider added have none.
fn words(part: &Part) -> Option<String> {
    Some(match part {
        Part::Text(text) => text.text.to_string(),
        Part::Reasoning(reasoning) => reasoning.text.to_string(),
        Part::ToolCall(call) => format!("{} {}", call.name, call.arguments.as_str()),
        Part::ToolResult(result) => format!("{}: {}", result.name, result.text()),
        _ => return None,
    })
}

/// Adds the list of tools if it has been changed.
pub(crate) fn changed_tools(
    earlier: &[Arc<ToolDeclaration>],
    later: &[Arc<ToolDeclaration>],
    changes: &mut Vec<FieldChange>,
) {
    let mut pairs = earlier.iter().zip(later);
    let is_same = earlier.len() == later.len()
        && pairs.all(|(one, other)| Arc::ptr_eq(one, other) || one == other);
    if !is_same {
        let [before, after] = [earlier, later].map(|tools| Some(tools.len()));
        changes.push(FieldChange::new("tools", before, after));
    }
}

/// Adds the settings that have been changed.
pub(crate) fn changed_settings(
    earlier: &Arc<Settings>,
    later: &Arc<Settings>,
    changes: &mut Vec<FieldChange>,
) {
    if !Arc::ptr_eq(earlier, later) {
        let fields = earlier.changed_fields(later).into_iter();
        changes.extend(fields.map(|field| FieldChange::new(field, None, None)));
    }
}

/// The content of a model response. It shares everything.
pub(crate) struct SeenModelResponse {
    pub(super) message: Message,
    pub(super) usage: Usage,
    pub(super) metadata: Option<Arc<Metadata>>,
    pub(super) asks_again: bool,
}

impl SeenModelResponse {
    /// Adds the fields that a later response has changed.
    pub(crate) fn changes(&self, later: &Self, changes: &mut Vec<FieldChange>) {
        changed_words(&self.message, &later.message, changes);
        let mut note = |field| changes.push(FieldChange::new(field, None, None));
        if self.usage != later.usage {
            note("usage");
        }
        if self.asks_again != later.asks_again {
            note("asks_again");
        }
        if !is_same(&self.metadata, &later.metadata) && self.metadata != later.metadata {
            note("metadata");
        }
    }

    /// Returns the text of a changed field, here and in a later response.
    pub(crate) fn texts(&self, later: &Self, field: &str) -> Option<[String; 2]> {
        let is_text = field == "text";
        is_text.then(|| [self.message.text(), later.message.text()])
    }
}

/// Adds the parts of a message that have been changed.
pub(crate) fn changed_words(earlier: &Message, later: &Message, changes: &mut Vec<FieldChange>) {
    if earlier.is_clone_of(later) {
        return;
    }
    let known = changes.len();
    let mut note = |field, before, after| changes.push(FieldChange::new(field, before, after));
    let is_equal = earlier == later;
    let [text, later_text] = [earlier.text(), later.text()];
    if text != later_text {
        note("text", Some(text.len()), Some(later_text.len()));
    }
    if !is_equal && !earlier.tool_calls().eq(later.tool_calls()) {
        let [before, after] = [earlier, later].map(|message| message.tool_calls().count());
        note("tool_calls", Some(before), Some(after));
    }
    if earlier.finish_reason() != later.finish_reason() {
        note("finish_reason", None, None);
    }
    if !is_equal && changes.len() == known {
        // Reasoning, media, or what a provider added.
        let [before, after] = [earlier, later].map(|message| message.parts().len());
        changes.push(FieldChange::new("parts", Some(before), Some(after)));
    }
}
