use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::BoxStream;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use tower_agent::serve::{NotRead, ReadTimeout};

/// The body of a response of a [`ConsoleService`](crate::ConsoleService): a file, JSON, or a live
/// view as server-sent events, which ends if nobody reads it.
pub struct ResponseBody(Kind);

enum Kind {
    Full(Full<Bytes>),
    /// `None` once it was let go.
    Live(Option<ReadTimeout<BoxStream<'static, Bytes>>>),
}

impl ResponseBody {
    #[cfg(feature = "inbox")]
    pub(super) fn full(bytes: Full<Bytes>) -> Self {
        Self(Kind::Full(bytes))
    }

    pub(super) fn live(events: ReadTimeout<BoxStream<'static, Bytes>>) -> Self {
        Self(Kind::Live(Some(events)))
    }
}

impl<B: Into<Bytes>> From<B> for ResponseBody {
    fn from(bytes: B) -> Self {
        Self(Kind::Full(Full::new(bytes.into())))
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = NotRead;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NotRead>>> {
        match &mut self.0 {
            Kind::Full(bytes) => Pin::new(bytes)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Kind::Live(live) => {
                let Some(events) = live else {
                    return Poll::Ready(None);
                };
                let bytes = ready!(Pin::new(events).poll_next(cx));
                if !matches!(bytes, Some(Ok(_))) {
                    *live = None;
                }
                Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Full(bytes) => bytes.is_end_stream(),
            Kind::Live(events) => events.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Full(bytes) => bytes.size_hint(),
            Kind::Live(_) => SizeHint::default(),
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").finish_non_exhaustive()
    }
}
