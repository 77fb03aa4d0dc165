//! Reads a streamed or plain response into a sink.

use std::pin::pin;

use futures_util::{StreamExt, TryStreamExt};
use http_body::Body;
use http_body_util::{BodyDataStream, BodyExt};
use sse_stream::SseByteStream;

use super::decoder::Decoder;
use super::head::Head;
use tower_agent::error::{BoxError, Error, Result};
use tower_agent::model::ModelResponse;
use tower_agent::stream::{Attempt, Delta, DeltaSender};

/// Reads the response and streams it to the consumer. A response with an error status starts no
/// attempt.
pub(super) async fn read<B>(
    head: Head,
    asked: usize,
    body: B,
    is_stream: bool,
    sink: Option<DeltaSender>,
) -> Result<ModelResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    let open = || sink.as_ref().map_or_else(Attempt::unseen, DeltaSender::open);
    let mut decoder = Decoder::new(head, asked);
    let (mut attempt, last) = if is_stream {
        let mut attempt = open();
        let last = streamed(&mut decoder, body, &mut attempt).await?;
        (attempt, last)
    } else {
        let broke = |error: B::Error| decoder.head().broke(error.into());
        let body = body.collect().await.map_err(broke)?.to_bytes();
        let deltas = decoder.plain(&body)?;
        (open(), deltas)
    };
    send(&mut attempt, last).await?;
    Ok(decoder.response(attempt.finish().await?))
}

/// Reads a body of server-sent events, with backpressure from the sink.
async fn streamed<B>(decoder: &mut Decoder, body: B, attempt: &mut Attempt) -> Result<Vec<Delta>>
where
    B: Body<Error: Into<BoxError>>,
{
    let head = decoder.head().clone();
    let bytes = BodyDataStream::new(body).map_err(|error| head.broke(error.into()));
    let mut events = pin!(SseByteStream::new(bytes));
    let mut is_done = false;
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| match error {
            sse_stream::Error::Body(error) => Error::from(error),
            error => head.protocol(format!("cannot read the stream: {error}")),
        })?;
        let is_error = event.event.as_deref() == Some("error");
        match event.data.as_deref().unwrap_or_default().trim() {
            "" => {}
            "[DONE]" => {
                is_done = true;
                break;
            }
            data if is_error => return Err(decoder.error_event(data)),
            data => send(attempt, decoder.chunk(data)?).await?,
        }
    }
    // Nothing is read after `[DONE]`: some servers keep the connection open.
    if !is_done && !decoder.is_finished() {
        return Err(head.protocol("the stream ended early: the response is incomplete"));
    }
    let mut last = Vec::new();
    decoder.end(&mut last)?;
    Ok(last)
}

async fn send(attempt: &mut Attempt, deltas: Vec<Delta>) -> Result<()> {
    for delta in deltas {
        attempt.send(delta).await?;
    }
    Ok(())
}
