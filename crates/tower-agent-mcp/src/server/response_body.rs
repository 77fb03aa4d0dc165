use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
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

/// The size of an event, in bytes, above which a message is sent as JSON if it is the first one:
/// the official Python SDK reads no event of 1 MiB.
const LARGE_EVENT: usize = 512 * 1024;

/// How long the head of a response waits for its first message. Proxies wait for 30 s and more.
const HEAD_WITHIN: Duration = Duration::from_secs(25);

/// The body of a response of [`McpHttp`](super::McpHttp).
#[derive(Debug)]
pub struct ResponseBody {
    first: Option<Bytes>,
    rest: BoxBody<Bytes, Infallible>,
    /// Drops the call when nobody reads its response any more.
    _call: Option<DropGuard>,
}

impl ResponseBody {
    pub(super) fn new(rest: BoxBody<Bytes, Infallible>) -> Self {
        Self {
            first: None,
            rest,
            _call: None,
        }
    }

    pub(super) fn dropping(mut self, call: DropGuard) -> Self {
        self._call = Some(call);
        self
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
        Pin::new(&mut self.rest)
            .poll_frame(cx)
            .map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let Some(first) = &self.first else {
            return self.rest.size_hint();
        };
        let first = first.len() as u64;
        let rest = self.rest.size_hint();
        let mut size = SizeHint::new();
        size.set_lower(first + rest.lower());
        if let Some(upper) = rest.upper() {
            size.set_upper(first + upper);
        }
        size
    }
}
