//! The stored form of a session.

use std::ops::Range;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tower_agent::agent::CheckpointHead;
use tower_agent::call::Request;
use tower_agent::message::{Message, Messages, Role};
use tower_agent::{AgentRequest, Checkpoint};

use super::kind::SESSION;
use super::store::StoredSession;
use crate::error::StoreError;
use crate::json;

/// The format that is written. Increase it when an older version of this crate would misread what
/// is written, and keep reading the older ones.
const FORMAT: u32 = 1;

/// The part of a head that every format has.
#[derive(Deserialize)]
struct Label {
    kind: String,
    format: u32,
}

/// The head of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SessionHead {
    kind: String,
    format: u32,
    checkpoint: CheckpointHead,
    /// The messages after the entries, which may still change.
    #[serde(default, skip_serializing_if = "Messages::is_empty")]
    open: Messages,
    #[serde(default)]
    pub(super) state: Map<String, Value>,
    /// The name of the last writer.
    pub(super) writer: Arc<str>,
    /// The run that has the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) claim: Option<Claim>,
}

/// A run that has a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    /// The end of the claim unless it is renewed, in milliseconds since 1970.
    pub(super) until: i64,
    /// The time at which the request was accepted, in milliseconds since 1970.
    pub(super) since: i64,
    /// The run may have started calls that were open before it.
    pub(super) resumes: bool,
    /// The run's id.
    #[serde(default)]
    pub(super) run: Option<Arc<str>>,
    /// A journal knows which of the calls it has started.
    #[serde(default)]
    pub(super) is_journaled: bool,
}

impl Claim {
    /// Returns whether this request began the run, which has stored these messages, and may be made
    /// again.
    pub(super) fn is_of(&self, request: &AgentRequest, stored: &Messages) -> bool {
        // The run id alone is not enough: a caller may give it to another message. A claim stores
        // the request's messages last.
        let sent = request.messages();
        let from = stored.len().saturating_sub(sent.len());
        self.run.as_deref() == Some(request.context().run_id())
            // Without a journal, open calls may have been started, and would be made twice.
            && (self.is_journaled || !self.resumes)
            && stored.range(from).eq(sent.iter())
    }
}

impl SessionHead {
    pub(super) fn new(
        checkpoint: CheckpointHead,
        open: Messages,
        state: Map<String, Value>,
        writer: Arc<str>,
        claim: Option<Claim>,
    ) -> Self {
        Self {
            kind: SESSION.to_owned(),
            format: FORMAT,
            checkpoint,
            open,
            state,
            writer,
            claim,
        }
    }

    /// Returns the conversation of the session, which has these entries.
    pub(super) fn checkpoint(&self, entries: &Messages) -> Checkpoint {
        let mut messages = entries.clone();
        messages.extend(self.open.iter().cloned());
        Checkpoint {
            head: self.checkpoint.clone(),
            messages,
        }
    }

    pub(super) fn write(&self) -> Result<String, StoreError> {
        json::write(self)
    }

    pub(super) fn read(head: &str) -> Result<Self, StoreError> {
        read_head(head, SESSION, FORMAT)
    }
}

/// Reads a head of this kind, whose latest known format is `newest`.
pub(crate) fn read_head<T: DeserializeOwned>(
    head: &str,
    kind: &str,
    newest: u32,
) -> Result<T, StoreError> {
    // First the label alone, since a head of another kind or a later format may not be readable.
    let label: Label = serde_json::from_str(head).map_err(StoreError::data)?;
    if label.kind != kind {
        let message = format!(
            "the key holds a {}, not a {kind}: use another key",
            label.kind
        );
        return Err(StoreError::data(message));
    }
    if label.format > newest {
        return Err(StoreError::NewerFormat {
            found: label.format,
            newest,
        });
    }
    serde_json::from_str(head).map_err(StoreError::data)
}

/// Returns the entries of a session.
pub(super) fn read_entries(stored: &StoredSession) -> Result<Messages, StoreError> {
    let entries = stored
        .entries
        .iter()
        .map(|entry| serde_json::from_str::<Message>(entry));
    entries
        .collect::<Result<Messages, _>>()
        .map_err(StoreError::data)
}

pub(super) fn write_entries(
    messages: &Messages,
    range: Range<usize>,
) -> Result<Vec<String>, StoreError> {
    let mut entries = Vec::with_capacity(range.len());
    for message in messages.range(range.start).take(range.len()) {
        entries.push(json::write(message)?);
    }
    Ok(entries)
}

/// Returns the number of messages, from the first on, that no longer change; the first `known` are
/// known not to. A message with an open call may still change, and so may everything after it. So
/// may the last calls until a message follows their results, which a run may still put in order.
pub(super) fn settled(messages: &Messages, known: usize) -> usize {
    let mut open: Vec<(Arc<str>, usize)> = Vec::new();
    for (index, message) in messages.range(known).enumerate() {
        for result in message.tool_results() {
            open.retain(|(id, _)| *id != result.call_id);
        }
        open.extend(
            message
                .tool_calls()
                .map(|call| (call.id.clone(), known + index)),
        );
    }
    // The trailing results, and the message with their calls.
    let results = messages
        .iter()
        .rev()
        .take_while(|message| message.role() == Role::Tool)
        .count();
    let last = messages.len() - results - usize::from(results > 0);
    open.iter()
        .map(|(_, index)| *index)
        .fold(last, usize::min)
        .max(known)
}

/// Returns the number of messages that two conversations have in common, from the first on. The
/// contents are compared as well as the ids, since a changed message keeps its id.
pub(super) fn common(one: &Messages, other: &Messages) -> usize {
    one.iter()
        .zip(other.iter())
        .take_while(|(one, other)| one.id() == other.id() && one == other)
        .count()
}

/// Gives an id to each message of a request that has none, before the request is stored: the run
/// must not give it another one later. `known` is the number of messages that the session has.
pub(super) fn identify(request: &mut AgentRequest, known: usize) {
    let run = request.context().run_id().to_owned();
    let messages = request.messages_mut();
    for index in 0..messages.len() {
        // Looked at first, since `get_mut` copies messages that are shared.
        if messages[index].id().is_none()
            && let Some(message) = messages.get_mut(index)
        {
            let id = format!("{run}-u{}", known + index);
            *message = message.clone().with_id(id);
        }
    }
}
