//! An agent call as a probe between two wrappers sees it.

use std::sync::Arc;

use super::answer_format::AnswerFormat;
use crate::message::Messages;
use crate::model::{Settings, changed_messages, changed_settings, changed_tools, changed_words};
use crate::stream::{EndReason, FieldChanges};
use crate::tool::ToolSet;

/// The part of a request that an agent sees. It shares everything.
pub(crate) struct SeenAgentRequest {
    pub(super) messages: Messages,
    pub(super) tools: ToolSet,
    pub(super) settings: Arc<Settings>,
    pub(super) answer_format: Option<AnswerFormat>,
}

impl SeenAgentRequest {
    pub(crate) fn changes(&self, later: &Self, changes: &mut FieldChanges) {
        changed_messages(&self.messages, &later.messages, changes);
        let [tools, later_tools] = [self, later].map(|seen| seen.tools.declarations());
        changed_tools(tools, later_tools, changes);
        changed_settings(&self.settings, &later.settings, changes);
        if !AnswerFormat::is_same(&self.answer_format, &later.answer_format) {
            changes.add("answer_format");
        }
    }
}

/// The content of an agent response. It shares everything.
pub(crate) struct SeenAgentResponse {
    pub(super) messages: Messages,
    pub(super) new_from: usize,
    pub(super) end_reason: EndReason,
}

impl SeenAgentResponse {
    pub(crate) fn changes(&self, later: &Self, changes: &mut FieldChanges) {
        // The new ones alone: a response of a callback is put behind those of the request.
        let [new, later_new] = [self, later].map(|seen| seen.messages.range(seen.new_from));
        if !new.clone().eq(later_new.clone()) {
            changes.add_sized("messages", [new.len(), later_new.len()].map(Some));
        }
        let mut last = new.rev().zip(later_new.rev());
        if let Some((last, later_last)) = last.next() {
            changed_words(last, later_last, changes);
        }
        if self.end_reason != later.end_reason {
            changes.add("end_reason");
        }
    }
}
