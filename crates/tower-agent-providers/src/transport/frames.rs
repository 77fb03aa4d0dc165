use std::pin::Pin;

use bytes::{Buf, BufMut, BytesMut};
use futures_util::{Stream, StreamExt};
use serde::de::IgnoredAny;
use sse_stream::{Sse, SseByteStream};

use super::broken::Broken;
#[cfg(feature = "bedrock")]
use super::event_stream::EventStream;
use crate::protocol::{Fault, Framing};
use tower_agent::error::Error;

/// Divides the body of a streamed response into events.
pub(super) enum Frames<S: Stream<Item = Result<D, Error>>, D> {
    ServerSentEvents(Pin<Box<SseByteStream<S>>>),
    Lines(Pin<Box<S>>, Lines),
    #[cfg(feature = "bedrock")]
    AwsEventStream(Pin<Box<S>>, EventStream),
}

impl<S: Stream<Item = Result<D, Error>>, D: Buf> Frames<S, D> {
    pub(super) fn new(framing: Framing, bytes: S) -> Self {
        match framing {
            Framing::ServerSentEvents => {
                Self::ServerSentEvents(Box::pin(SseByteStream::new(bytes)))
            }
            Framing::Lines => Self::Lines(Box::pin(bytes), Lines::default()),
            #[cfg(feature = "bedrock")]
            Framing::AwsEventStream => {
                Self::AwsEventStream(Box::pin(bytes), EventStream::default())
            }
        }
    }

    /// Returns the next event, or `None` at the end of the body. An incomplete event at the end is
    /// left out.
    pub(super) async fn next(&mut self) -> Result<Option<Sse>, Broken> {
        match self {
            Self::ServerSentEvents(events) => events.next().await.transpose().map_err(Broken::from),
            Self::Lines(bytes, lines) => loop {
                if let Some(line) = lines.next()? {
                    return Ok(Some(line));
                }
                match bytes.next().await {
                    Some(Ok(more)) => lines.push(more),
                    Some(Err(error)) => return Err(Broken::Body(error)),
                    None => return lines.last(),
                }
            },
            #[cfg(feature = "bedrock")]
            Self::AwsEventStream(bytes, frames) => loop {
                if let Some(event) = frames.next()? {
                    return Ok(Some(event));
                }
                match bytes.next().await {
                    Some(Ok(more)) => frames.push(more),
                    Some(Err(error)) => return Err(Broken::Body(error)),
                    None => return Ok(None),
                }
            },
        }
    }
}

/// Lines of a body that arrives in pieces.
#[derive(Debug, Default)]
pub(super) struct Lines {
    bytes: BytesMut,
    /// So much of the bytes contains no end of a line.
    searched: usize,
}

impl Lines {
    fn push(&mut self, more: impl Buf) {
        self.bytes.put(more);
    }

    fn next(&mut self) -> Result<Option<Sse>, Broken> {
        // Bytes that were searched are not searched again, however small the pieces of a long line.
        let found = self.bytes[self.searched..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(found) = found else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let line = self.bytes.split_to(self.searched + found + 1);
        self.searched = 0;
        event(&line).map(Some)
    }

    /// Returns what follows the last end of a line, if it is complete.
    fn last(&mut self) -> Result<Option<Sse>, Broken> {
        let line = self.bytes.split();
        self.searched = 0;
        // The last line may lack its end; one that was cut off is no event.
        match serde_json::from_slice::<IgnoredAny>(&line) {
            Ok(_) => event(&line).map(Some),
            Err(_) => Ok(None),
        }
    }
}

fn event(line: &[u8]) -> Result<Sse, Broken> {
    match std::str::from_utf8(line) {
        Ok(line) => Ok(Sse::default().data(line)),
        // Not replaced character by character: it would be an answer that nobody gave.
        Err(error) => {
            let message = format!("cannot read the stream: {error}");
            Err(Broken::Format(Fault::protocol(message)))
        }
    }
}
