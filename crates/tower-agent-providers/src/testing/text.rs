use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::FutureExt;
use http::Request;
use http_body_util::BodyExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::transport::RequestBody;

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
            Err(_) => Self::Base64 {
                base64: STANDARD.encode(bytes),
            },
        }
    }

    pub(super) fn into_bytes(self) -> Result<Bytes, base64::DecodeError> {
        match self {
            Self::Plain(text) => Ok(text.into()),
            Self::Base64 { base64 } => STANDARD.decode(base64).map(Bytes::from),
        }
    }
}

/// Returns the body as JSON, or else as text or bytes.
pub(super) fn body(request: &Request<RequestBody>) -> Value {
    // It is in one piece, and therefore ready.
    let body = request.body().clone().collect().now_or_never();
    let body = body
        .and_then(Result::ok)
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    serde_json::from_slice(&body)
        .or_else(|_| serde_json::to_value(Text::new(&body)))
        .unwrap_or_default()
}
