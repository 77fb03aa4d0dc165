//! How an HTTP call ended, as data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::transport::Secrets;
use tower_agent::error::Error;

/// How an HTTP call ended.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Outcome {
    /// `None` if there was no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) headers: Vec<(String, Text)>,
    /// The pieces of the body.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) frames: Vec<Text>,
    /// The error of the call, or of the body after its pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<Error>,
    /// Whether the body was dropped before its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unread: bool,
}

/// Bytes, readable where they are text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Text {
    Plain(String),
    Base64 { base64: String },
}

impl Text {
    pub(super) fn new(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Plain(text.to_owned()),
            Err(_) => Self::Base64 { base64: STANDARD.encode(bytes) },
        }
    }

    pub(super) fn into_bytes(self) -> Result<Bytes, base64::DecodeError> {
        match self {
            Self::Plain(text) => Ok(text.into()),
            Self::Base64 { base64 } => STANDARD.decode(base64).map(Bytes::from),
        }
    }
}

impl Outcome {
    pub(super) fn head(status: StatusCode, headers: &HeaderMap) -> Self {
        let headers = headers.iter().map(|(name, value)| {
            let is_secret = value.is_sensitive() || name.as_str().contains("cookie");
            let value = if is_secret { b"[hidden]" } else { value.as_bytes() };
            (name.as_str().to_owned(), Text::new(value))
        });
        Self { status: Some(status.as_u16()), headers: headers.collect(), ..Self::default() }
    }

    pub(super) fn failed(error: &Error) -> Self {
        Self { error: Some(error.clone()), ..Self::default() }
    }

    /// Returns the outcome without secrets.
    pub(super) fn hidden(mut self, frames: &[Bytes], secrets: &Secrets) -> Value {
        self.frames = hidden_frames(frames, secrets);
        // All of it serialises.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        hide(&mut value, secrets);
        value
    }

    pub(super) fn read_headers(&mut self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in std::mem::take(&mut self.headers) {
            let value = value.into_bytes().map_err(|error| error.to_string())?;
            headers.append(
                HeaderName::try_from(name).map_err(|error| error.to_string())?,
                HeaderValue::from_maybe_shared(value).map_err(|error| error.to_string())?,
            );
        }
        Ok(headers)
    }
}

/// Keeps the pieces of a body, unless a secret stands across two of them.
fn hidden_frames(frames: &[Bytes], secrets: &Secrets) -> Vec<Text> {
    let whole = frames.concat();
    let text = String::from_utf8_lossy(&whole);
    let hidden = secrets.hide(&text);
    if hidden == text {
        return frames.iter().map(|frame| Text::new(frame)).collect();
    }
    let one_by_one = frames.iter().map(|frame| secrets.hide(&String::from_utf8_lossy(frame)));
    let one_by_one: Vec<_> = one_by_one.collect();
    match one_by_one.concat() == hidden {
        true => one_by_one.into_iter().map(Text::Plain).collect(),
        false => vec![Text::Plain(hidden)],
    }
}

/// Hides the secrets in every text.
pub(super) fn hide(value: &mut Value, secrets: &Secrets) {
    match value {
        Value::String(text) => *text = secrets.hide(text),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, secrets)),
        Value::Object(entries) => {
            entries.values_mut().for_each(|entry| hide(entry, secrets));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
