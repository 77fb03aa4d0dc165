//! The stored form of a session.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tower_agent::call::Request;
use tower_agent::message::{Message, Messages, Role};
use tower_agent::{AgentRequest, Checkpoint};

use super::store::StoredSession;
use crate::error::StoreError;

/// What a head of a session says that it is.
const KIND: &str = "session";

/// The format that is written. Increase it when an older version of this crate would misread what
/// is written, and keep reading the older ones.
const FORMAT: u32 = 1;

/// What every head says about itself.
#[derive(Deserialize)]
struct Label {
    kind: String,
    format: u32,
}

/// The head of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Head {
    kind: String,
    format: u32,
    /// Its messages are those after the entries, which may still change.
    pub(super) checkpoint: Checkpoint,
    #[serde(default)]
    pub(super) state: Map<String, Value>,
    /// Who wrote last.
    pub(super) writer: Arc<str>,
    /// The run that has the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) claim: Option<Claim>,
}

/// A run that has a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claim {
    /// When it is given up, unless it is renewed, in milliseconds since 1970.
    pub(super) until: i64,
    /// Whether the run may have started calls that were open before it.
    pub(super) resumes: bool,
    /// The run's id.
    #[serde(default)]
    pub(super) run: Option<Arc<str>>,
    /// Whether a journal knows which of the calls it has started.
    #[serde(default)]
    pub(super) is_journaled: bool,
}

impl Claim {
    /// Returns whether a request is the one of this run, which has stored these messages, and can be
    /// made again.
    pub(super) fn is_of(&self, request: &AgentRequest, stored: &Messages) -> bool {
        let asked = request.messages();
        let from = stored.len().saturating_sub(asked.len());
        self.run.as_deref() == Some(request.context().run_id())
            && (self.is_journaled || !self.resumes)
            && stored.range(from).eq(asked.iter())
    }
}

impl Head {
    pub(super) fn new(
        checkpoint: Checkpoint,
        state: Map<String, Value>,
        writer: Arc<str>,
        claim: Option<Claim>,
    ) -> Self {
        Self {
            kind: KIND.to_owned(),
            format: FORMAT,
            checkpoint,
            state,
            writer,
            claim,
        }
    }

    pub(super) fn write(&self) -> Result<String, StoreError> {
        serde_json::to_string(self).map_err(StoreError::data)
    }

    pub(super) fn read(head: &str) -> Result<Self, StoreError> {
        let label: Label = serde_json::from_str(head).map_err(StoreError::data)?;
        if label.kind != KIND {
            let message = format!(
                "this is a {}, and not a {KIND}: use another key",
                label.kind
            );
            return Err(StoreError::data(message));
        }
        if label.format > FORMAT {
            return Err(StoreError::NewerFormat {
                found: label.format,
                newest: FORMAT,
            });
        }
        serde_json::from_str(head).map_err(StoreError::data)
    }
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
    let messages = messages.range(range.start).take(range.len());
    messages
        .map(|message| serde_json::to_string(message).map_err(StoreError::data))
        .collect()
}

/// Returns how many messages, from the first on, stay as they are, given that the first `known` do:
/// those before a call without a result, and before the last calls until something follows their
/// results, which a run may still put in order.
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

/// Returns how many messages two conversations have in common, from the first on. A message that was
/// changed since keeps its id.
pub(super) fn common(one: &Messages, other: &Messages) -> usize {
    one.iter()
        .zip(other.iter())
        .take_while(|(one, other)| one.id() == other.id() && one == other)
        .count()
}

/// Gives an id to each message of a request that has none: what a run stores before it begins has
/// the id that it keeps. `known` is the number of messages that the session has.
pub(super) fn identify(request: &mut AgentRequest, known: usize) {
    let run = request.context().run_id().to_owned();
    let messages = request.messages_mut();
    for index in 0..messages.len() {
        if messages[index].id().is_none()
            && let Some(message) = messages.get_mut(index)
        {
            let id = format!("{run}-u{}", known + index);
            *message = message.clone().with_id(id);
        }
    }
}
