//! `(&Event, &mut Vec<u8>)`
//!
//! Events as server-sent events: one `data:` line each, and an empty line. Lines end in LF; the
//! protocol allows nothing else.
//!
//! ```
//! use tower_agent::agui::{Event, sse};
//!
//! let mut bytes = Vec::new();
//! sse::write(&Event::text_end("m1"), &mut bytes)?;
//! assert_eq!(bytes, b"data: {\"type\":\"TEXT_MESSAGE_END\",\"messageId\":\"m1\"}\n\n");
//! # Ok::<_, tower_agent::Error>(())
//! ```

use bytes::Bytes;

use super::Event;
use crate::error::{Error, ErrorKind, Result};

/// The type of the stream, for the header `content-type`.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// A comment, to be sent now and then so that nobody on the way takes the connection for dead.
pub const KEEP_ALIVE: Bytes = Bytes::from_static(b": keep-alive\n\n");

/// Appends the event to `bytes`.
///
/// # Errors
///
/// Of the kind [`Other`](ErrorKind::Other), if the event cannot be written as JSON; `bytes` is
/// then as it was.
pub fn write(event: &Event, bytes: &mut Vec<u8>) -> Result<()> {
    let before = bytes.len();
    bytes.extend_from_slice(b"data: ");
    if let Err(error) = serde_json::to_writer(&mut *bytes, event) {
        bytes.truncate(before);
        let what = format!("the event {} cannot be written as JSON", event.kind.name());
        return Err(Error::new(ErrorKind::Other, what).with_source(error));
    }
    bytes.extend_from_slice(b"\n\n");
    Ok(())
}
