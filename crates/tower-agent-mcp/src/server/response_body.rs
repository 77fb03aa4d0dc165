use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::DropGuard;
use tower_agent::BoxError;
use tower_agent::serve::{Place, ReadTimeout};

/// The size of an event, in bytes, above which a message is sent as JSON if it is the first one:
/// the official Python SDK reads no event of 1 MiB.
const LARGE_EVENT: usize = 512 * 1024;

/// The time that the head of a response waits for its first message. Proxies wait for 30 s and
/// more.
const HEAD_WITHIN: Duration = Duration::from_secs(25);

/// The body of a response of [`McpHttp`](super::McpHttp).
///
/// It fails for a client that [did not read](super::McpServerBuilder::read_timeout).
#[derive(Debug)]
pub struct ResponseBody {
    first: Option<Bytes>,
    rest: Rest,
}

#[derive(Debug)]
enum Rest {
    Whole(BoxBody<Bytes, Infallible>),
    /// The part of a response that a client may not read, and what is its own until it has.
    Watched(ReadTimeout<Watched>),
}

#[derive(Debug)]
struct Watched {
    body: BoxBody<Bytes, Infallible>,
    /// Drops the call when nobody reads its response any more, and gives its place to another.
    _guard: (DropGuard, Option<Place>),
}

impl ResponseBody {
    pub(super) fn new(rest: BoxBody<Bytes, Infallible>) -> Self {
        Self {
            first: None,
            rest: Rest::Whole(rest),
        }
    }

    /// Keeps the call and its place until the response was read, or was not read for this time.
    pub(super) fn dropping(self, guard: (DropGuard, Option<Place>), read_time: Duration) -> Self {
        let rest = match self.rest {
            // Nothing waits for the client: it is in memory, with a length that is known.
            Rest::Whole(body) if body.size_hint().exact().is_some() => Rest::Whole(body),
            Rest::Whole(body) => {
                let watched = Watched {
                    body,
                    _guard: guard,
                };
                Rest::Watched(ReadTimeout::new(watched, read_time))
            }
            watched @ Rest::Watched(_) => watched,
        };
        Self { rest, ..self }
    }
}

/// Sends the first message of a stream as JSON in place of the stream, if it is the answer, and
/// large or `even_if_small`.
pub(super) async fn as_json(
    response: Response<BoxBody<Bytes, Infallible>>,
    even_if_small: bool,
) -> Response<ResponseBody> {
    let (mut head, mut rest) = response.into_parts();
    let content_type = head.headers.get(CONTENT_TYPE);
    if !content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream")) {
        return Response::from_parts(head, ResponseBody::new(rest));
    }
    let deadline = Instant::now() + HEAD_WITHIN;
    let first = loop {
        let Ok(Some(Ok(frame))) = timeout_at(deadline, rest.frame()).await else {
            break None;
        };
        match frame.into_data() {
            // A comment only keeps the connection alive.
            Ok(event) if event.starts_with(b":") && Instant::now() < deadline => {}
            frame => break frame.ok(),
        }
    };
    let smallest = if even_if_small { 0 } else { LARGE_EVENT };
    let answer = first
        .as_ref()
        .filter(|event| event.len() > smallest)
        .and_then(answer_in);
    let body = match answer {
        None => ResponseBody {
            first,
            ..ResponseBody::new(rest)
        },
        Some(answer) => {
            let json = HeaderValue::from_static("application/json");
            head.headers.insert(CONTENT_TYPE, json);
            head.headers.remove(CACHE_CONTROL);
            // Nothing comes after an answer.
            ResponseBody {
                first: Some(answer),
                ..ResponseBody::new(BoxBody::default())
            }
        }
    };
    Response::from_parts(head, body)
}

/// Returns the message in an event if it is an answer.
fn answer_in(event: &Bytes) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct Message {
        method: Option<IgnoredAny>,
    }

    // A message is one line.
    let mut lines = event.split(|byte| *byte == b'\n');
    let data = lines.find_map(|line| line.strip_prefix(b"data:"))?;
    let message: Message = serde_json::from_slice(data).ok()?;
    message
        .method
        .is_none()
        .then(|| event.slice_ref(data.trim_ascii()))
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let polled = match &mut self.rest {
            Rest::Whole(body) => Ok(ready!(Pin::new(body).poll_frame(cx))),
            Rest::Watched(rest) => {
                ready!(rest.poll_with(|rest| Pin::new(&mut rest.body).poll_frame(cx)))
            }
        };
        Poll::Ready(match polled {
            Ok(frame) => frame.map(|frame| frame.map_err(|never| match never {})),
            Err(not_read) => Some(Err(not_read.into())),
        })
    }

    fn is_end_stream(&self) -> bool {
        let rest_is_over = match &self.rest {
            Rest::Whole(body) => body.is_end_stream(),
            // Only the next poll shows it.
            Rest::Watched(_) => false,
        };
        self.first.is_none() && rest_is_over
    }

    fn size_hint(&self) -> SizeHint {
        let rest = match &self.rest {
            Rest::Whole(body) => body.size_hint(),
            Rest::Watched(_) => SizeHint::default(),
        };
        let Some(first) = &self.first else {
            return rest;
        };
        let first = first.len() as u64;
        let mut size = SizeHint::new();
        size.set_lower(first + rest.lower());
        if let Some(upper) = rest.upper() {
            size.set_upper(first + upper);
        }
        size
    }
}
