//! An agent call as a probe between two wrappers sees it.

use std::sync::Arc;

use super::answer_format::AnswerFormat;
use crate::message::{Message, Messages};
use crate::model::{Settings, changed_settings, changed_tools, changed_words, texts_of_messages};
use crate::stream::{EndReason, FieldChange};
use crate::tool::ToolSet;

/// The part of a request that an agent sees. It shares everything.
pub(crate) struct SeenAgentRequest {
    pub(super) messages: Messages,
    pub(super) tools: ToolSet,
    pub(super) settings: Arc<Settings>,
    pub(super) answer_format: Option<AnswerFormat>,
}

impl SeenAgentRequest {
    pub(crate) fn changes(&self, later: &Self, changes: &mut Vec<FieldChange>) {
        if self.messages != later.messages {
            let [before, after] = [self, later].map(|seen| Some(seen.messages.len()));
            changes.push(FieldChange::new("messages", before, after));
        }
        let [tools, later_tools] = [self, later].map(|seen| seen.tools.declarations());
        changed_tools(tools, later_tools, changes);
        changed_settings(&self.settings, &later.settings, changes);
        if !AnswerFormat::is_same(&self.answer_format, &later.answer_format) {
            changes.push(FieldChange::new("answer_format", None, None));
        }
    }

    pub(crate) fn texts(&self, later: &Self, field: &str) -> Option<[String; 2]> {
        let is_messages = field == "messages";
        is_messages.then(|| texts_of_messages(self.messages.iter(), later.messages.iter()))
    }
}

/// The content of an agent response. It shares everything.
pub(crate) struct SeenAgentResponse {
    pub(super) messages: Messages,
    pub(super) new_from: usize,
    pub(super) end_reason: EndReason,
}

impl SeenAgentResponse {
    pub(crate) fn changes(&self, later: &Self, changes: &mut Vec<FieldChange>) {
        // The new ones alone: a response of a callback is put behind those of the request.
        let [new, later_new] = [self, later].map(|seen| seen.messages.range(seen.new_from));
        let before = new.len();
        let after = later_new.len();
        if !new.clone().eq(later_new.clone()) {
            changes.push(FieldChange::new("messages", Some(before), Some(after)));
        }
        let mut last = new.rev().zip(later_new.rev());
        if let Some((last, later_last)) = last.next() {
            changed_words(last, later_last, changes);
        }
        if self.end_reason != later.end_reason {
            changes.push(FieldChange::new("end_reason", None, None));
        }
    }

    pub(crate) fn texts(&self, later: &Self, field: &str) -> Option<[String; 2]> {
        let text = |seen: &Self| {
            let last = seen.messages.range(seen.new_from).next_back();
            last.map(Message::text).unwrap_or_default()
        };
        (field == "text").then(|| [self, later].map(text))
    }
}
