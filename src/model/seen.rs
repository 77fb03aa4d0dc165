//! A model call as a probe between two wrappers sees it.

use std::sync::Arc;

use super::settings::Settings;
use crate::message::{Message, Messages, Metadata, Part, Usage};
use crate::stream::{FieldChanges, PromptPart, is_same};
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
    pub(crate) fn changes(&self, later: &Self, changes: &mut FieldChanges) {
        if self.instructions != later.instructions {
            let instructions = [self, later].map(|seen| seen.instructions.as_deref());
            let texts = || instructions.map(|text| text.unwrap_or_default().into());
            let sizes = instructions.map(|text| text.map(str::len));
            changes.add_text("instructions", sizes, || Some(texts()));
        }
        changed_messages(&self.messages, &later.messages, changes);
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
}

/// Returns the text of a tool in the prompt. As text, since the order of keys counts for a cache.
fn written(tool: &ToolDeclaration) -> (&str, &str, String) {
    let parameters = tool.parameters().to_string();
    (tool.name(), tool.description(), parameters)
}

pub(crate) fn changed_messages(earlier: &Messages, later: &Messages, changes: &mut FieldChanges) {
    if earlier != later {
        let sizes = [earlier, later].map(|messages| Some(messages.len()));
        changes.add_text("messages", sizes, || Some(differing(earlier, later)));
    }
}

/// Returns the texts of those messages that are not the same, each behind its role.
fn differing(earlier: &Messages, later: &Messages) -> [String; 2] {
    let pairs = earlier.iter().zip(later.iter());
    let known = pairs.take_while(|(one, other)| one == other).count();
    let text = |message: &Message| {
        let role = message.role();
        let parts = message.parts().iter().filter_map(words);
        parts
            .map(|words| format!("{role:?}: {words}\n"))
            .collect::<String>()
    };
    [earlier, later].map(|messages| messages.iter().skip(known).map(text).collect())
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
    changes: &mut FieldChanges,
) {
    let mut pairs = earlier.iter().zip(later);
    let is_same = earlier.len() == later.len()
        && pairs.all(|(one, other)| Arc::ptr_eq(one, other) || one == other);
    if !is_same {
        changes.add_sized("tools", [earlier, later].map(|tools| Some(tools.len())));
    }
}

pub(crate) fn changed_settings(
    earlier: &Arc<Settings>,
    later: &Arc<Settings>,
    changes: &mut FieldChanges,
) {
    for field in changed_fields(earlier, later) {
        changes.add(format!("settings.{field}"));
    }
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
    pub(crate) fn changes(&self, later: &Self, changes: &mut FieldChanges) {
        changed_words(&self.message, &later.message, changes);
        if self.usage != later.usage {
            changes.add("usage");
        }
        if self.asks_again != later.asks_again {
            changes.add("asks_again");
        }
        if !is_same(&self.metadata, &later.metadata) && self.metadata != later.metadata {
            changes.add("metadata");
        }
    }
}

/// Adds the parts of a message that have been changed.
pub(crate) fn changed_words(earlier: &Message, later: &Message, changes: &mut FieldChanges) {
    if earlier.is_clone_of(later) {
        return;
    }
    let known = changes.found.len();
    let is_equal = earlier == later;
    let texts = [earlier, later].map(Message::text);
    if texts[0] != texts[1] {
        let sizes = [0, 1].map(|index| Some(texts[index].len()));
        changes.add_text("text", sizes, || Some(texts));
    }
    if !is_equal && !earlier.tool_calls().eq(later.tool_calls()) {
        let count = |message: &Message| Some(message.tool_calls().count());
        changes.add_sized("tool_calls", [earlier, later].map(count));
    }
    if earlier.finish_reason() != later.finish_reason() {
        changes.add("finish_reason");
    }
    if !is_equal && changes.found.len() == known {
        // Reasoning, media, or what a provider added.
        let sizes = [earlier, later].map(|message| Some(message.parts().len()));
        changes.add_sized("parts", sizes);
    }
}
