//! A call that is being recorded.

use std::fmt;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::outcome::{Outcome, Text, hide};
use crate::transport::{RequestBody, Secrets};
use tower_agent::error::Error;
use tower_agent::testing::recording::{OpenCall, RecordedCall};

/// Returns the secrets of a request.
pub(super) fn secrets(request: &Request<RequestBody>) -> Secrets {
    let query = request.uri().query().unwrap_or_default();
    let mut secrets = Secrets::new(None, request.headers(), query);
    add_secrets(&body(request), &mut secrets);
    secrets
}

/// Adds the values of fields that are named as secrets: a hosted tool's key is sent in the body.
fn add_secrets(value: &Value, secrets: &mut Secrets) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| add_secrets(item, secrets)),
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if is_secret(name) => secrets.add(text),
                    other => add_secrets(other, secrets),
                }
            }
        }
        _ => {}
    }
}

fn is_secret(field: &str) -> bool {
    const SECRET: [&str; 5] = ["apikey", "authorization", "password", "secret", "token"];
    let name = field.replace(['-', '_'], "").to_ascii_lowercase();
    SECRET.iter().any(|word| name.ends_with(word))
}

/// Returns the body as JSON, or else as text or bytes.
fn body(request: &Request<RequestBody>) -> Value {
    // It is in one piece, and therefore ready.
    let body = request.body().clone().collect().now_or_never();
    let body = body.and_then(Result::ok).map(|body| body.to_bytes()).unwrap_or_default();
    serde_json::from_slice(&body)
        .or_else(|_| serde_json::to_value(Text::new(&body)))
        .unwrap_or_default()
}

/// Returns a request as data, without its secrets.
pub(super) fn recorded(request: &Request<RequestBody>, secrets: &Secrets) -> RecordedCall {
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let method = request.method().as_str();
    let mut data = json!({ "method": method, "target": target, "body": body(request) });
    hide(&mut data, secrets);
    let name = format!("{method} {}", secrets.hide(request.uri().path()));
    RecordedCall::new("http", data).with_name(name)
}

/// A call without a response yet.
pub(super) struct Exchange {
    open: OpenCall,
    secrets: Secrets,
}

/// A response whose body is being read. If it is dropped, the rest of the body is left out.
pub(super) struct Reading {
    open: Option<OpenCall>,
    secrets: Secrets,
    outcome: Outcome,
    frames: Vec<Bytes>,
}

impl Exchange {
    pub(super) fn new(open: OpenCall, secrets: Secrets) -> Self {
        Self { open, secrets }
    }

    pub(super) fn failed(self, error: &Error) {
        self.open.end(Outcome::failed(error).hidden(&[], &self.secrets));
    }

    pub(super) fn answered(self, status: StatusCode, headers: &HeaderMap) -> Reading {
        let outcome = Outcome::head(status, headers);
        Reading { open: Some(self.open), secrets: self.secrets, outcome, frames: Vec::new() }
    }
}

impl Reading {
    pub(super) fn frame(&mut self, frame: Bytes) {
        self.frames.push(frame);
    }

    /// Ends the body, perhaps with an error.
    pub(super) fn end(&mut self, error: Option<&Error>) {
        self.outcome.error = error.cloned();
        self.close();
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            let outcome = std::mem::take(&mut self.outcome);
            open.end(outcome.hidden(&self.frames, &self.secrets));
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.outcome.unread = true;
        self.close();
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("frames", &self.frames.len()).finish_non_exhaustive()
    }
}

/// Returns the error of a recorded response that cannot be read.
pub(super) fn unreadable(reason: impl fmt::Display) -> Error {
    Error::abort(format!("cannot read a recorded HTTP response: {reason}"))
}

/// Reads a recorded outcome.
pub(super) fn read(outcome: Value) -> Result<Outcome, Error> {
    serde_json::from_value(outcome).map_err(unreadable)
}
