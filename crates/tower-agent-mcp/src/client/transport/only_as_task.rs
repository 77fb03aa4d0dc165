//! Marks tools that run only as tasks of protocol version 2025-11-25: rmcp does not read that they
//! do.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use serde_json::{Map, Value};
use tokio::io::{AsyncBufRead, AsyncRead, BufReader, ReadBuf};

use crate::client::declaration::ONLY_AS_TASK;

/// Returns a message with a mark in the `_meta` of each tool that runs only as a task, or `None` if
/// there is none.
pub(super) fn marked(message: &[u8]) -> Option<Vec<u8>> {
    let message = std::str::from_utf8(message).ok()?;
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

/// A stream of lines, one a message, with the marks.
pub(super) struct MarkedLines<R> {
    read: BufReader<R>,
    max_line: usize,
    line: Vec<u8>,
    /// The number of bytes of `line` that were read. `None` while the line is not complete.
    taken: Option<usize>,
}

impl<R: AsyncRead + Unpin> MarkedLines<R> {
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
            && let Some(mut marked) = marked(&self.line)
        {
            marked.push(b'\n');
            self.line = marked;
        }
        // What is too long is passed on in pieces, for the transport to drop.
        let is_complete = end.is_some() || length == 0 || self.line.len() > self.max_line;
        if is_complete {
            self.taken = Some(0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for MarkedLines<R> {
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
