use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::Stream;
use tower::BoxError;

/// The bytes of an event stream, up to the first event that is larger than allowed. The parser
/// behind it would buffer an event of any size.
///
/// An event ends with an empty line; carriage returns do not count as one.
pub(super) struct Limited<S> {
    bytes: S,
    max: usize,
    size: usize,
    line_is_empty: bool,
}

/// A failure to read the body of a response.
#[derive(Debug)]
pub(super) enum BodyError {
    TooLarge { max: usize },
    Broken(BoxError),
}

impl<S> Limited<S> {
    pub(super) fn new(bytes: S, max: usize) -> Self {
        Self {
            bytes,
            max,
            size: 0,
            line_is_empty: true,
        }
    }

    fn fits(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            match byte {
                b'\n' if self.line_is_empty => self.size = 0,
                b'\n' => self.line_is_empty = true,
                b'\r' => {}
                _ => self.line_is_empty = false,
            }
            self.size += 1;
            if self.size > self.max {
                return false;
            }
        }
        true
    }
}

impl<S> Stream for Limited<S>
where
    S: Stream<Item = Result<Bytes, BoxError>> + Unpin,
{
    type Item = Result<Bytes, BodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(bytes) = ready!(Pin::new(&mut self.bytes).poll_next(cx)) else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(match bytes {
            Ok(bytes) if self.fits(&bytes) => Ok(bytes),
            Ok(_) => Err(BodyError::TooLarge { max: self.max }),
            Err(error) => Err(BodyError::Broken(error)),
        }))
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { max } => write!(
                f,
                "a message of the server is larger than {max} bytes; raise `max_message_size`"
            ),
            Self::Broken(error) => write!(f, "the connection broke: {error}"),
        }
    }
}

impl std::error::Error for BodyError {}
