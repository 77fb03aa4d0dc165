use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_agent::message::Message;

use super::shown::ShownForm;

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The client's id, if the client knows the message.
    pub(crate) id: Option<Arc<str>>,
    pub(crate) speaker: Speaker,
    /// The message for the model, if it is part of the conversation.
    pub(crate) message: Option<Message>,
    /// Its tool calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) calls: Vec<SentCall>,
    /// The form in which the client has it.
    #[serde(default, skip_serializing_if = "ShownForm::is_hidden")]
    pub(crate) shown: ShownForm,
    /// The entry whose message it changes. The client has that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) changes: Option<usize>,
    /// The message whose call it is a result of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answers: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Speaker {
    User,
    System,
    Assistant,
    Tool,
}

/// A call that the server has sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SentCall {
    /// The model's id.
    pub(crate) id: Arc<str>,
    /// The client's id.
    pub(crate) client_id: Arc<str>,
    /// The client executes it.
    pub(crate) is_client: bool,
}

impl Entry {
    pub(crate) fn new(
        id: Option<Arc<str>>,
        speaker: Speaker,
        message: impl Into<Option<Message>>,
    ) -> Self {
        let message: Option<Message> = message.into();
        Self {
            id,
            speaker,
            message: message.map(identified),
            calls: Vec::new(),
            shown: ShownForm::Hidden,
            changes: None,
            answers: None,
        }
    }

    /// Sets the calls.
    pub(crate) fn with_calls(self, calls: Vec<SentCall>) -> Self {
        Self { calls, ..self }
    }

    /// Sets the form in which the client has it.
    pub(crate) fn shown_as(self, shown: ShownForm) -> Self {
        Self { shown, ..self }
    }

    /// Sets the entry whose message this changes.
    pub(crate) fn changing(self, changes: Option<usize>) -> Self {
        let shown = match changes {
            Some(_) => ShownForm::Hidden,
            None => self.shown,
        };
        Self {
            changes,
            shown,
            ..self
        }
    }

    /// Sets the message whose call this is a result of.
    pub(crate) fn with_call(self, answers: Option<usize>) -> Self {
        Self { answers, ..self }
    }

    /// Returns whether its message has this id.
    pub(crate) fn has_message(&self, id: &str) -> bool {
        let message = self.message.as_ref().and_then(Message::id);
        message.is_some_and(|own| *own == *id)
    }

    /// Returns whether it calls a tool of the server.
    pub(crate) fn calls_server(&self) -> bool {
        self.calls.iter().any(|call| !call.is_client)
    }
}

/// Returns a message with an id, by which the transcript of a run is compared with the thread.
fn identified(message: Message) -> Message {
    if message.id().is_some() {
        message
    } else {
        message.with_id(uuid::Uuid::new_v4().to_string())
    }
}
