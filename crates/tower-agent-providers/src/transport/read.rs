//! Reads a streamed or plain response into a sink.

use std::pin::pin;

use bytes::{Buf, BufMut};
use futures_util::StreamExt;
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt};

use super::broken::Broken;
use super::frames::Frames;
use super::head::ResponseHead;
use super::stated_usage::StatedUsage;
use crate::protocol::{Decoder, Event, Fault, Framing, Progress};
use tower_agent::error::{BoxError, Error, Result};
use tower_agent::message::whole_characters;
use tower_agent::model::{FinishReason, ModelResponse};
use tower_agent::stream::{Attempt, DeltaSender, Piece, Streamed};

/// Reads a plain response. One that is an error starts no attempt.
pub(super) async fn plain<D: Decoder, B>(
    head: ResponseHead,
    decoder: impl Fn() -> D,
    body: B,
    sink: Option<DeltaSender>,
) -> Result<ModelResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    let body = body
        .collect()
        .await
        .map_err(|error| head.broke(error.into()))?
        .to_bytes();
    whole(head, decoder, &body, sink).await
}

/// Reads the start of a body, at most this many bytes; nothing of one that breaks off.
pub(super) async fn start<B>(body: B, max: usize) -> Vec<u8>
where
    B: Body<Error: Into<BoxError>>,
{
    let mut bytes = Vec::new();
    let mut data = pin!(BodyDataStream::new(body));
    while bytes.len() < max
        && let Some(piece) = data.next().await
    {
        let Ok(piece) = piece else {
            return Vec::new();
        };
        let room = max - bytes.len();
        bytes.put(piece.take(room));
    }
    bytes
}

/// Reads the body of a plain response.
pub(super) async fn whole<D: Decoder>(
    head: ResponseHead,
    new_decoder: impl Fn() -> D,
    body: &[u8],
    sink: Option<DeltaSender>,
) -> Result<ModelResponse> {
    // Read whole before anything is sent: a body that is an error must not begin an attempt.
    let mut pieces = Vec::new();
    let mut usage = StatedUsage::new(head.stated_usage());
    usage.read(body);
    let mut decoder = new_decoder();
    let mut read = decoder.response(body, &mut pieces);
    if read.is_err()
        && let Ok(text) = str::from_utf8(body)
        && let Some(mended) = whole_characters(text)
    {
        pieces.clear();
        decoder = new_decoder();
        read = decoder.response(mended.as_bytes(), &mut pieces);
    }
    read.map_err(|fault| head.fault(&fault, &decoder))?;
    let streamed = match sink {
        None => Streamed::from_pieces(pieces.into_iter().filter(|piece| !is_empty(piece)))?,
        // Apart, so that there is no room for it where nobody watches.
        Some(sink) => Box::pin(stream_whole(sink, pieces)).await?,
    };
    Ok(finish(head, decoder, streamed, usage))
}

async fn stream_whole(sink: DeltaSender, mut pieces: Vec<Piece>) -> Result<Streamed> {
    let mut attempt = sink.open();
    send(&mut attempt, &mut pieces).await?;
    attempt.finish().await
}

/// Reads a streamed response, with backpressure from the sink.
pub(super) async fn streamed<D: Decoder, B>(
    head: ResponseHead,
    mut decoder: D,
    framing: Framing,
    body: B,
    sink: Option<DeltaSender>,
) -> Result<ModelResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    let mut attempt = sink
        .as_ref()
        .map_or_else(Attempt::unseen, DeltaSender::open);
    let mut usage = StatedUsage::new(head.stated_usage());
    let read = events(&head, &mut decoder, framing, body, &mut attempt, &mut usage).await;
    read.map_err(|unread| match unread {
        Unread::Fault(fault) => head.fault(&fault, &decoder),
        Unread::Error(error) => error,
    })?;
    Ok(finish(head, decoder, attempt.finish().await?, usage))
}

/// The reason why a streamed response was not read to its end.
enum Unread {
    Fault(Fault),
    /// Of the body or of the sink.
    Error(Error),
}

impl From<Error> for Unread {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Broken> for Unread {
    fn from(broken: Broken) -> Self {
        match broken {
            Broken::Body(error) => Self::Error(error),
            Broken::Format(fault) => Self::Fault(fault),
        }
    }
}

async fn events<B>(
    head: &ResponseHead,
    decoder: &mut impl Decoder,
    framing: Framing,
    body: B,
    attempt: &mut Attempt,
    usage: &mut StatedUsage,
) -> Result<(), Unread>
where
    B: Body<Error: Into<BoxError>>,
{
    let mut line = OpenLine::default();
    let bytes = BodyDataStream::new(body).map(|data| {
        let mut data = data.map_err(|error| head.broke(error.into()))?;
        // For free from the default client, whose data is in one piece.
        let data = data.copy_to_bytes(data.remaining());
        if framing.has_lines() && line.add(&data) > head.max_line() {
            return Err(head.too_long("a line of the response", head.max_line()));
        }
        Ok(data)
    });
    let mut frames = Frames::new(framing, bytes);
    let mut pieces = Vec::new();
    while let Some(frame) = frames.next().await? {
        let data = frame.data.as_deref().unwrap_or_default().trim();
        // Comments and blank events keep a connection alive.
        if data.is_empty() {
            continue;
        }
        let event = Event::new(data).with_name(frame.event.as_deref());
        usage.read(data.as_bytes());
        let mut progress = decoder.event(event, &mut pieces);
        // Asked only now: most events have no half characters, and each would be searched for them.
        if progress.is_err()
            && let Some(mended) = whole_characters(data)
        {
            let event = Event::new(&mended).with_name(frame.event.as_deref());
            progress = decoder.event(event, &mut pieces);
        }
        let progress = progress.map_err(Unread::Fault)?;
        // Before the next event is read, so that a slow consumer slows down the connection.
        send(attempt, &mut pieces).await?;
        if progress == Progress::Done {
            return Ok(());
        }
    }
    // The body ended without the protocol's last event; the decoder knows whether that is the end.
    decoder.end(&mut pieces).map_err(Unread::Fault)?;
    Ok(send(attempt, &mut pieces).await?)
}

/// The line that a stream is in, which is kept until its end comes.
#[derive(Default)]
struct OpenLine {
    len: usize,
}

impl OpenLine {
    /// Adds the next bytes of the stream. Returns the length of the line at their end.
    fn add(&mut self, data: &[u8]) -> usize {
        self.len = match data.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => data.len() - end - 1,
            None => self.len + data.len(),
        };
        self.len
    }
}

async fn send(attempt: &mut Attempt, pieces: &mut Vec<Piece>) -> Result<()> {
    for piece in pieces.drain(..).filter(|piece| !is_empty(piece)) {
        attempt.send(piece).await?;
    }
    Ok(())
}

/// Some servers begin with an empty text, which would be a part of its own.
fn is_empty(piece: &Piece) -> bool {
    matches!(piece, Piece::Delta(delta) if delta.is_empty())
}

fn finish(
    head: ResponseHead,
    decoder: impl Decoder,
    streamed: Streamed,
    usage: StatedUsage,
) -> ModelResponse {
    let config = head.config();
    let mut metadata = head.into_metadata(&decoder);
    metadata.stated_usage = usage.into_json();
    let mut response = decoder.finish(streamed).with_metadata(metadata);
    config.issuer.mark(&mut response);
    // A word of the server's, which may be anything that it was sent.
    let FinishReason::Other(word) = response.finish_reason() else {
        return response;
    };
    let word = config.secrets.hide(word);
    response.with_finish_reason(FinishReason::Other(word.into()))
}
