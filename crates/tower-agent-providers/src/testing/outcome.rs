//! The end of an HTTP call, as data.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::hiding::Hiding;
use super::text::Text;
use tower_agent::error::Error;

/// The end of an HTTP call.
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
    /// The body was dropped before its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) unread: bool,
}

impl Outcome {
    pub(super) fn head(status: StatusCode, headers: &HeaderMap) -> Self {
        let headers = headers.iter().map(|(name, value)| {
            let is_secret = value.is_sensitive() || name.as_str().contains("cookie");
            let value = if is_secret {
                b"[hidden]"
            } else {
                value.as_bytes()
            };
            (name.as_str().to_owned(), Text::new(value))
        });
        Self {
            status: Some(status.as_u16()),
            headers: headers.collect(),
            ..Self::default()
        }
    }

    pub(super) fn failed(error: &Error) -> Self {
        Self {
            error: Some(error.clone()),
            ..Self::default()
        }
    }

    /// Returns the outcome with its body, without what is hidden.
    pub(super) fn hidden(mut self, frames: &[Bytes], hiding: &Hiding) -> Value {
        match hiding.frames(frames) {
            Some(frames) => self.frames = frames,
            None => self.error = Some(unreadable()),
        }
        let frames = std::mem::take(&mut self.frames);
        // All of it serialises.
        let mut value = serde_json::to_value(self).unwrap_or_default();
        hiding.value(&mut value);
        if !frames.is_empty() {
            value["frames"] = serde_json::to_value(frames).unwrap_or_default();
        }
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

fn unreadable() -> Error {
    Error::abort(
        "this response was not recorded: it is not text, so that nothing can be redacted in it; \
         decompress it inside the recording",
    )
}
