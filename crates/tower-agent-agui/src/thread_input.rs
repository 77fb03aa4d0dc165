//! The client's side of a thread: its input and its messages, for the rules of
//! [`tower_agent_conversations`].

use std::sync::Arc;

use tower_agent::error::Resolution;
use tower_agent::message::Part;
use tower_agent_conversations::{
    ClientCall, ClientInput, ClientMessage, ClientRole, ClientView, InputPart, Refusal,
    RefusalKind, Roles, RunProgress, ShownForm, Threads,
};

use crate::conversation::{self, Conversation};
use crate::shown;
use crate::wire::{
    Content, InputError, InputErrorKind, Message, MessageKind, ResumeEntry, ResumeStatus,
    RunAgentInput,
};

/// Returns the sealed threads in an input, and removes them from it: callbacks would find them
/// there.
pub(super) fn take_sealed(input: &mut RunAgentInput, threads: &Threads) -> Vec<String> {
    let values = input.messages.iter_mut();
    values
        .filter_map(|message| {
            let value = &mut message.encrypted_value;
            value.take_if(|value| threads.is_sealed(value))
        })
        .collect()
}

/// Returns an input as the rules read it.
pub(super) fn thread_input(
    input: &RunAgentInput,
    roles: Roles,
    sealed: Vec<String>,
) -> ClientInput<'_, Message> {
    let mut read = ClientInput::new(input.run_id.clone(), &*input.messages);
    read.answers = input.resume.iter().map(answer).collect();
    read.tools = input.tools.iter().map(|tool| tool.name.clone()).collect();
    read.roles = roles;
    read.reader = shown::reader(&input.messages);
    read.sealed = sealed;
    read
}

fn answer(entry: &ResumeEntry) -> Resolution {
    let id = &*entry.interrupt_id;
    match entry.status {
        ResumeStatus::Cancelled => Resolution::cancelled(id),
        ResumeStatus::Resolved => {
            Resolution::resolved(id, entry.payload.clone().unwrap_or_default())
        }
    }
}

impl ClientMessage for Message {
    type Error = InputError;

    fn id(&self) -> &Arc<str> {
        &self.id
    }

    fn role(&self) -> ClientRole<'_> {
        // A subagent keeps its own conversation.
        if self.subagent_run_id.is_some() {
            return ClientRole::Outside;
        }
        match &self.kind {
            MessageKind::Developer { .. } | MessageKind::System { .. } => ClientRole::System,
            MessageKind::User { .. } => ClientRole::User,
            MessageKind::Assistant { content, .. } => {
                ClientRole::Assistant(content.as_deref().unwrap_or_default())
            }
            MessageKind::Reasoning { .. } => ClientRole::Assistant(""),
            MessageKind::Tool { tool_call_id, .. } => ClientRole::Tool {
                call: tool_call_id,
                is_failed: conversation::is_failed(self),
            },
            MessageKind::Activity { .. } => ClientRole::Outside,
        }
    }

    fn parts(&self, index: usize) -> Result<Vec<Part>, InputError> {
        let path = |field: &str| format!("messages[{index}].{field}");
        match &self.kind {
            MessageKind::Developer { content } | MessageKind::System { content } => {
                Ok(vec![Part::from_text(content)])
            }
            MessageKind::User { content } => conversation::parts(content, path),
            MessageKind::Tool { content, error, .. } => {
                conversation::result_parts(content, error.as_deref(), path)
            }
            MessageKind::Assistant { .. }
            | MessageKind::Reasoning { .. }
            | MessageKind::Activity { .. } => Ok(Vec::new()),
        }
    }

    fn has_parts(&self, parts: &[Part], index: usize) -> Result<bool, InputError> {
        // Nearly all messages are text, which need not be copied to be compared.
        if let MessageKind::User {
            content: Content::Text(text),
        } = &self.kind
        {
            return Ok(matches!(parts, [Part::Text(known)] if known.text == *text));
        }
        Ok(self.parts(index)? == parts)
    }

    fn calls(&self) -> Vec<ClientCall<'_>> {
        let calls = self.tool_calls().iter();
        calls
            .map(|call| ClientCall {
                id: &call.id,
                name: &call.function.name,
                arguments: &call.function.arguments,
            })
            .collect()
    }
}

impl ClientView for Conversation {
    fn has_message(&self, id: &str) -> bool {
        self.has(id)
    }

    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.messages()
            .iter()
            .filter_map(|message| match &message.kind {
                MessageKind::Assistant {
                    content: Some(text),
                    ..
                } if message.subagent_run_id.is_none() => Some((&*message.id, &**text)),
                _ => None,
            })
    }

    fn shown(&self, id: &str, message: &tower_agent::Message, progress: RunProgress) -> ShownForm {
        shown::form(self, id, message, progress)
    }
}

impl From<Refusal> for InputError {
    fn from(refusal: Refusal) -> Self {
        let path = match refusal.part {
            InputPart::Message(index) => format!("messages[{index}].id"),
            InputPart::Content(index) => format!("messages[{index}].content"),
            InputPart::Call(index) => format!("messages[{index}].toolCallId"),
            InputPart::Answers => "resume".to_owned(),
            InputPart::Answer(index) => format!("resume[{index}].interruptId"),
            _ => "threadId".to_owned(),
        };
        let kind = match refusal.kind {
            RefusalKind::Forbidden => InputErrorKind::Forbidden,
            RefusalKind::NotOpen => InputErrorKind::NotOpen,
            RefusalKind::Expired => InputErrorKind::Expired,
            RefusalKind::Busy => InputErrorKind::Busy,
            RefusalKind::Overloaded => InputErrorKind::Overloaded,
            RefusalKind::Store => InputErrorKind::Store,
            _ => InputErrorKind::Invalid,
        };
        Self::new(path, refusal.message)
            .of(kind)
            .after(refusal.retry_after)
    }
}

/// The error of an [`Inbox`](tower_agent_conversations::Inbox), which has no input of a protocol.
impl From<InputError> for Refusal {
    fn from(error: InputError) -> Self {
        let kind = match error.kind() {
            InputErrorKind::Syntax | InputErrorKind::Invalid => RefusalKind::Invalid,
            InputErrorKind::Forbidden => RefusalKind::Forbidden,
            InputErrorKind::NotOpen => RefusalKind::NotOpen,
            InputErrorKind::Expired => RefusalKind::Expired,
            InputErrorKind::Busy => RefusalKind::Busy,
            InputErrorKind::Overloaded
            | InputErrorKind::TooManyRuns
            | InputErrorKind::ShuttingDown => RefusalKind::Overloaded,
            InputErrorKind::Store => RefusalKind::Store,
        };
        let refusal = Self::new(kind, InputPart::Thread, error.message());
        match error.retry_after() {
            None => refusal,
            Some(time) => refusal.retry_after(time),
        }
    }
}
