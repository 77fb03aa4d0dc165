use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use pin_project_lite::pin_project;

use super::exchange::Reading;
use crate::transport::broke;
use tower_agent::error::{BoxError, Error};

pin_project! {
    /// The body of a response that is recorded or replayed. Trailers are not recorded.
    pub struct RecordedBody<B> {
        #[pin]
        state: BodyState<B>,
    }
}

pin_project! {
    #[project = Projected]
    enum BodyState<B> {
        Live {
            #[pin]
            body: B,
            reading: Reading,
        },
        Replay {
            frames: VecDeque<Bytes>,
            error: Option<Error>,
            unread: bool,
        },
    }
}

impl<B> RecordedBody<B> {
    pub(super) fn live(body: B, reading: Reading) -> Self {
        Self {
            state: BodyState::Live { body, reading },
        }
    }

    /// A body that was not read to its end hangs there.
    pub(super) fn replay(frames: VecDeque<Bytes>, error: Option<Error>, unread: bool) -> Self {
        Self {
            state: BodyState::Replay {
                frames,
                error,
                unread,
            },
        }
    }
}

impl<B> Body for RecordedBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.project().state.project() {
            Projected::Live { body, reading } => {
                let Some(frame) = ready!(body.poll_frame(cx)) else {
                    reading.end(None);
                    return Poll::Ready(None);
                };
                Poll::Ready(Some(match frame {
                    Ok(frame) => {
                        // A frame of trailers has no data and passes unchanged.
                        let frame = frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
                        if let Some(data) = frame.data_ref() {
                            reading.frame(data.clone());
                        }
                        Ok(frame)
                    }
                    Err(error) => {
                        let error = broke(error.into());
                        reading.end(Some(&error));
                        Err(error)
                    }
                }))
            }
            Projected::Replay {
                frames,
                error,
                unread,
            } => match frames.pop_front() {
                Some(frame) => Poll::Ready(Some(Ok(Frame::data(frame)))),
                // The recorded call was dropped here, and so must this one be.
                None if *unread => Poll::Pending,
                None => Poll::Ready(error.take().map(Err)),
            },
        }
    }
}

impl<B> fmt::Debug for RecordedBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedBody").finish_non_exhaustive()
    }
}
