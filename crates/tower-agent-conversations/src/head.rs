//! The stored form of a head: what every policy has, and the policy's own body.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::json::to_json;

/// A policy's part of what is stored: its kind, and the newest format of its bodies. Increase the
/// format when an older version of this crate would misread what is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) kind: &'static str,
    pub(crate) number: u32,
}

/// The part of a head that every format has.
#[derive(Deserialize)]
struct Label {
    kind: String,
    format: u32,
}

/// The head of a conversation, with a body of its policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Head<T> {
    kind: String,
    format: u32,
    /// The name of the last writer.
    pub(crate) writer: Arc<str>,
    /// Names the entries: another name after some of them were replaced.
    pub(crate) entries: Arc<str>,
    /// The run that has the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claim: Option<Claim>,
    pub(crate) body: T,
}

/// A run that has a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// The end of the claim unless it is renewed, in milliseconds since 1970.
    pub(crate) until: i64,
    /// The run's id.
    pub(crate) run: Arc<str>,
    /// The time at which the request was accepted, in milliseconds since 1970.
    pub(crate) since: i64,
    /// The run may have started calls that were open before it.
    #[serde(default)]
    pub(crate) resumes: bool,
    /// A journal knows which of the calls it has started.
    #[serde(default)]
    pub(crate) is_journaled: bool,
}

impl<T> Head<T> {
    pub(crate) fn new(
        format: Format,
        writer: Arc<str>,
        entries: Arc<str>,
        claim: Option<Claim>,
        body: T,
    ) -> Self {
        Self {
            kind: format.kind.to_owned(),
            format: format.number,
            writer,
            entries,
            claim,
            body,
        }
    }
}

impl<T: Serialize> Head<T> {
    pub(crate) fn write(&self) -> Result<String, StoreError> {
        to_json(self)
    }
}

impl<T: DeserializeOwned> Head<T> {
    /// Reads a head of this format, or of an older one of its kind.
    pub(crate) fn read(head: &str, format: Format) -> Result<Self, StoreError> {
        // First the label alone, since a head of another kind or a later format may not be
        // readable.
        let label: Label = serde_json::from_str(head).map_err(StoreError::data)?;
        if label.kind != format.kind {
            let message = format!(
                "the key holds a {}, not a {}: use another key",
                label.kind, format.kind
            );
            return Err(StoreError::data(message));
        }
        if label.format > format.number {
            return Err(StoreError::NewerFormat {
                found: label.format,
                newest: format.number,
            });
        }
        serde_json::from_str(head).map_err(StoreError::data)
    }
}
