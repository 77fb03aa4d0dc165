//! A call that is being recorded.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use serde_json::{Value, json};

use super::hiding::Hiding;
use super::outcome::Outcome;
use super::text::body;
use crate::transport::RequestBody;
use tower_agent::error::Error;
use tower_agent_test::recording::{OpenCall, RecordedCall};

/// Returns a request as data, without what is hidden.
pub(super) fn recorded(request: &Request<RequestBody>, hiding: &Hiding) -> RecordedCall {
    let target = request
        .uri()
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let method = request.method().as_str();
    let mut data = json!({ "method": method, "target": target, "body": body(request) });
    hiding.value(&mut data);
    let name = format!("{method} {}", hiding.text(request.uri().path()));
    RecordedCall::new("http", data).with_name(name)
}

/// A call without a response yet.
pub(super) struct Exchange {
    open: OpenCall,
    hiding: Hiding,
}

/// A response whose body is being read. If it is dropped, the rest of the body is left out.
pub(super) struct Reading {
    open: Option<OpenCall>,
    hiding: Hiding,
    outcome: Outcome,
    frames: Vec<Bytes>,
}

impl Exchange {
    pub(super) fn new(open: OpenCall, hiding: Hiding) -> Self {
        Self { open, hiding }
    }

    pub(super) fn failed(self, error: &Error) {
        self.open
            .end(Outcome::failed(error).hidden(&[], &self.hiding));
    }

    pub(super) fn answered(self, status: StatusCode, headers: &HeaderMap) -> Reading {
        let outcome = Outcome::head(status, headers);
        Reading {
            open: Some(self.open),
            hiding: self.hiding,
            outcome,
            frames: Vec::new(),
        }
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
            open.end(outcome.hidden(&self.frames, &self.hiding));
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // Without effect after the end, which has taken the call.
        self.outcome.unread = true;
        self.close();
    }
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading")
            .field("frames", &self.frames.len())
            .finish_non_exhaustive()
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
