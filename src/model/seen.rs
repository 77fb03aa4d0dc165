//! A model call as a probe between two wrappers sees it.

use std::sync::Arc;

use super::settings::Settings;
use crate::message::{Message, Messages, Metadata, Part, Usage};
use crate::stream::{FieldChange, PromptPart, is_same};
use crate::tool::ToolDeclaration;

/// The part of a request that a model sees. It shares everything.
#[derive(Clone, Debug)]
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

    /// Returns the first part of the prompt that a later request does not repeat. New messages may
    /// only be appended.
    pub(crate) fn changed_in_prompt(&self, later: &Self) -> Option<PromptPart> {
        if let Some(name) = self.changed_settings(later).next() {
            return Some(PromptPart::Setting(name));
        }
        if let Some(name) = self.changed_tool(later) {
            return Some(PromptPart::Tool(name));
        }
        if self.instructions != later.instructions {
            return Some(PromptPart::Instructions);
        }
        let message = self.messages.changed_in(&later.messages);
        message.map(PromptPart::Message)
    }

    /// Returns whether a later request repeats this part of the prompt, or has it where this one
    /// has nothing.
    pub(crate) fn is_repeated(&self, part: &PromptPart, later: &Self) -> bool {
        match part {
            PromptPart::Setting(name) => {
                !self.changed_settings(later).any(|changed| changed == *name)
            }
            PromptPart::Tool(_) => self.changed_tool(later).is_none(),
            PromptPart::Instructions => self.instructions == later.instructions,
            PromptPart::Message(index) => match self.messages.get(*index) {
                Some(message) => later.messages.get(*index) == Some(message),
                None => true,
            },
        }
    }

    /// Returns the settings that differ, among those that are part of the prompt.
    fn changed_settings(&self, later: &Self) -> impl Iterator<Item = &'static str> {
        let changed = changed_fields(&self.settings, &later.settings).into_iter();
        changed.filter(|name| {
            let are_of_answer = ["temperature", "top_p", "max_tokens", "stop", "seed"];
            !are_of_answer.contains(name)
        })
    }

    /// Returns the first tool that differs, by its text.
    fn changed_tool(&self, later: &Self) -> Option<Arc<str>> {
        if Arc::ptr_eq(&self.tools, &later.tools) {
            return None;
        }
        for index in 0..self.tools.len().max(later.tools.len()) {
            let earlier = self.tools.get(index);
            let later = later.tools.get(index);
            let is_same = match (earlier, later) {
                (Some(one), Some(other)) => {
                    Arc::ptr_eq(one, other) || written(one) == written(other)
                }
                _ => false,
            };
            if !is_same {
                let tool = earlier.or(later);
                return tool.map(|tool| tool.name().into());
            }
        }
        None
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

/// Returns the text of a tool in the prompt. As text, since the order of keys counts for a cache.
fn written(tool: &ToolDeclaration) -> (&str, &str, String) {
    let parameters = tool.parameters().to_string();
    (tool.name(), tool.description(), parameters)
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

pub(crate) fn changed_settings(
    earlier: &Arc<Settings>,
    later: &Arc<Settings>,
    changes: &mut Vec<FieldChange>,
) {
    let fields = changed_fields(earlier, later).into_iter();
    changes.extend(fields.map(|field| FieldChange::new(format!("settings.{field}"), None, None)));
}

fn changed_fields(earlier: &Arc<Settings>, later: &Arc<Settings>) -> Vec<&'static str> {
    if Arc::ptr_eq(earlier, later) {
        return Vec::new();
    }
    earlier.changed_fields(later)
}

/// The content of a model response. It shares everything.
pub(crate) struct SeenModelResponse {
    pub(super) message: Message,
    pub(super) usage: Usage,
    pub(super) metadata: Option<Arc<Metadata>>,
    pub(super) asks_again: bool,
}

impl SeenModelResponse {
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
