//! Changes what servers send where rmcp would not read it: half a character, for which it drops the
//! whole message, and the mark of tools that run only as tasks of protocol version 2025-11-25.

use std::borrow::Cow;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::{Map, Value};
use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};
use tower_agent::message::whole_characters;

use crate::client::declaration::ONLY_AS_TASK;

/// Returns a message in the form that rmcp reads, or `None` if it is in that form.
pub(super) fn readable(message: &[u8]) -> Option<Vec<u8>> {
    let message = String::from_utf8_lossy(message);
    let mended = whole_characters(&message);
    let marked = marked(mended.as_deref().unwrap_or(&message));
    let mended = mended.or(match message {
        Cow::Owned(message) => Some(message),
        Cow::Borrowed(_) => None,
    });
    marked.or_else(|| mended.map(String::into_bytes))
}

/// Returns a message with a mark in the `_meta` of each tool that runs only as a task, or `None` if
/// there is none.
fn marked(message: &str) -> Option<Vec<u8>> {
    // Only lists of tools have it, so that no other message is parsed twice.
    if !message.contains("\"taskSupport\"") {
        return None;
    }
    let mut message: Value = serde_json::from_str(message).ok()?;
    for tool in message.pointer_mut("/result/tools")?.as_array_mut()? {
        let support = tool.pointer("/execution/taskSupport");
        if support.and_then(Value::as_str) != Some("required") {
            continue;
        }
        let meta = &mut tool["_meta"];
        if !meta.is_object() {
            *meta = Map::new().into();
        }
        meta[ONLY_AS_TASK] = true.into();
    }
    serde_json::to_vec(&message).ok()
}

/// A stream of lines, one a message, in that form.
pub(super) struct ReadableLines<R> {
    read: BufReader<R>,
    max_line: usize,
    line: Vec<u8>,
    /// The number of bytes of `line` that were read. `None` while the line is not complete.
    taken: Option<usize>,
}

impl<R: AsyncRead + Unpin> ReadableLines<R> {
    pub(super) fn new(read: R, max_line: usize) -> Self {
        Self {
            read: BufReader::new(read),
            max_line,
            line: Vec::new(),
            taken: None,
        }
    }

    /// Reads more of the line.
    fn poll_line(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let available = ready!(Pin::new(&mut self.read).poll_fill_buf(cx))?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let length = end.map_or(available.len(), |end| end + 1);
        self.line.extend_from_slice(&available[..length]);
        Pin::new(&mut self.read).consume(length);
        if end.is_some()
            && let Some(mut line) = readable(&self.line)
        {
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            self.line = line;
        }
        // What is too long is passed on in pieces, for the transport to drop.
        let is_complete = end.is_some() || length == 0 || self.line.len() > self.max_line;
        if is_complete {
            self.taken = Some(0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ReadableLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let taken = loop {
            match this.taken {
                Some(taken) => break taken,
                None => ready!(this.poll_line(cx))?,
            }
        };
        let line = &this.line[taken..];
        let length = line.len().min(buffer.remaining());
        buffer.put_slice(&line[..length]);
        this.taken = Some(taken + length);
        if taken + length == this.line.len() {
            this.line.clear();
            this.taken = None;
        }
        Poll::Ready(Ok(()))
    }
}
