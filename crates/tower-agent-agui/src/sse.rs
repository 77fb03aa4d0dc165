//! Writes events as server-sent events: one `data:` line each, and an empty line. Lines end in LF,
//! as the protocol requires.
//!
//! ```
//! use tower_agent_agui::{Event, sse};
//!
//! let mut bytes = Vec::new();
//! sse::Writer::new().write(&Event::text_end("m1"), &mut bytes)?;
//! assert_eq!(bytes, b"data: {\"type\":\"TEXT_MESSAGE_END\",\"messageId\":\"m1\"}\n\n");
//! # Ok::<_, tower_agent::Error>(())
//! ```

use std::io;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use bytes::Bytes;

use crate::wire::{Event, EventKind};
use tower_agent::error::{Error, ErrorKind, Result};

/// The media type of the stream, for the `content-type` header.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// A comment to send at intervals, so that proxies do not close an idle connection.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Writes events, one after another.
///
/// The common part of a message's pieces is serialised once.
#[derive(Debug, Default)]
pub struct Writer {
    last: Option<Head>,
}

/// The start of a piece's line, up to its text.
#[derive(Debug)]
struct Head {
    kind: Discriminant<EventKind>,
    id: Arc<str>,
    bytes: Vec<u8>,
}

impl Writer {
    /// Creates a writer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the event to `bytes`.
    ///
    /// # Errors
    ///
    /// Fails with the kind [`Other`](ErrorKind::Other) if the event cannot be serialised; `bytes`
    /// is then unchanged.
    pub fn write(&mut self, event: &Event, bytes: &mut Vec<u8>) -> Result<()> {
        let before = bytes.len();
        self.append(event, bytes).map_err(|error| {
            // Half a line would make the next event unreadable.
            bytes.truncate(before);
            let what = format!("cannot serialise the event {}", event.kind.name());
            Error::new(ErrorKind::Other, what).with_source(error)
        })
    }

    fn append(&mut self, event: &Event, bytes: &mut Vec<u8>) -> serde_json::Result<()> {
        // Other fields of an event follow the text, so only a plain event can share its start.
        let piece = event.kind.piece().filter(|_| event.is_plain());
        let kind = discriminant(&event.kind);
        if let (Some((id, more)), Some(last)) = (piece, &self.last)
            && last.kind == kind
            // By address: another copy of the id is written in full, with the same bytes.
            && Arc::ptr_eq(&last.id, id)
        {
            bytes.extend_from_slice(&last.bytes);
            serde_json::to_writer(&mut *bytes, more)?;
            bytes.push(b'}');
        } else {
            let before = bytes.len();
            // Such an event can be as large as all that the client has sent, and a buffer that
            // grows as it is written takes three times that.
            if matches!(
                event.kind,
                EventKind::StateSnapshot { .. } | EventKind::MessagesSnapshot { .. }
            ) {
                bytes.reserve_exact(length(event)? + LINE);
            }
            bytes.extend_from_slice(b"data: ");
            serde_json::to_writer(&mut *bytes, event)?;
            if let Some((id, more)) = piece {
                // The text is the last field, so all before it and its closing brace is the same
                // for every piece.
                let tail = serde_json::to_string(more)?.len() + 1;
                self.last = Some(Head {
                    kind,
                    id: id.clone(),
                    bytes: bytes[before..bytes.len() - tail].to_vec(),
                });
            }
        }
        bytes.extend_from_slice(b"\n\n");
        Ok(())
    }
}

/// The length of a line besides the event.
const LINE: usize = b"data: \n\n".len();

/// Returns the length of an event as JSON.
fn length(event: &Event) -> serde_json::Result<usize> {
    struct Length(usize);

    impl io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut length = Length(0);
    serde_json::to_writer(&mut length, event)?;
    Ok(length.0)
}
