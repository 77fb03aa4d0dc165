//! The frames of AWS's event streams.

use std::str;

use aws_smithy_eventstream::frame::read_message_from;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::Value;
use sse_stream::Sse;

use super::broken::Broken;
use crate::protocol::Fault;

/// The limit of a frame in bytes, which is that of AWS's own clients.
const MAX_FRAME: usize = 24 << 20;

/// The shortest frame, which is empty: its lengths and checksums.
const MIN_FRAME: usize = 16;

/// Frames of a body that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct EventStream {
    bytes: BytesMut,
}

impl EventStream {
    pub(super) fn push(&mut self, more: impl Buf) {
        self.bytes.put(more);
    }

    /// Returns the next frame as an event, or `None` if it is not complete yet.
    pub(super) fn next(&mut self) -> Result<Option<Sse>, Broken> {
        let Some(length) = self.bytes.first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        // Checked before the rest of the frame is waited for, which is kept until it is whole.
        let length = usize::try_from(length)
            .ok()
            .filter(|length| (MIN_FRAME..=MAX_FRAME).contains(length))
            .ok_or_else(|| unreadable(format_args!("a frame of {length} bytes")))?;
        if self.bytes.len() < length {
            return Ok(None);
        }
        event(self.bytes.split_to(length).freeze()).map(Some)
    }
}

fn unreadable(why: impl std::fmt::Display) -> Broken {
    Broken::Format(Fault::protocol(format!("cannot read the stream: {why}")))
}

fn event(frame: Bytes) -> Result<Sse, Broken> {
    let frame = read_message_from(frame).map_err(unreadable)?;
    let header = |name: &str| {
        let mut headers = frame.headers().iter();
        let header = headers.find(|header| header.name().as_str() == name)?;
        header.value().as_string().ok().map(|text| text.as_str())
    };
    // Not replaced character by character: it would be an answer that nobody gave.
    let payload = str::from_utf8(frame.payload()).map_err(unreadable)?;
    match header(":message-type") {
        Some("exception") => {
            let kind = header(":exception-type").unwrap_or_default();
            return Err(Broken::Format(exception(payload).with_code(kind)));
        }
        Some("error") => {
            let message = header(":error-message").unwrap_or("the server reported an error");
            let code = header(":error-code").unwrap_or_default();
            let fault = Fault::new(message.to_owned()).with_code(code);
            return Err(Broken::Format(fault));
        }
        _ => {}
    }
    let mut event = Sse::default();
    match header(":event-type") {
        // The next part of a response whose format is that of the model.
        Some("chunk") => event = event.data(part(payload)?),
        Some(kind) => event = event.event(kind).data(payload_or_empty(payload)),
        None => event = event.data(payload_or_empty(payload)),
    }
    Ok(event)
}

/// Returns the payload, or an empty object: an event without data would be skipped.
fn payload_or_empty(payload: &str) -> &str {
    if payload.trim().is_empty() {
        "{}"
    } else {
        payload
    }
}

#[derive(Deserialize)]
struct Chunk {
    bytes: Option<String>,
}

/// Returns the part of a response in a chunk.
fn part(payload: &str) -> Result<String, Broken> {
    let chunk: Chunk = serde_json::from_str(payload).map_err(unreadable)?;
    let Some(bytes) = chunk.bytes else {
        // Servers that imitate the protocol send the part itself.
        return Ok(payload.to_owned());
    };
    let bytes = STANDARD.decode(bytes).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(unreadable)
}

/// Reads the payload of an exception.
fn exception(payload: &str) -> Fault {
    let Ok(body) = serde_json::from_str::<Value>(payload) else {
        return Fault::new(payload.to_owned());
    };
    let fault = Fault::read(&body).unwrap_or_else(|| Fault::new("the server reported an error"));
    // The message of the server behind the one that answers.
    match body["originalMessage"].as_str() {
        Some(original) if original != fault.message() => fault.with_quote(original),
        _ => fault,
    }
}
