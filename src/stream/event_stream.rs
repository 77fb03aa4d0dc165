use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::Stream;

use super::Event;
use super::call::CallChannel;
use super::consumer_wait::{Clock, Pause};

/// The events of a run, in order, as they happen.
///
/// It ends when no more events can follow.
#[derive(Debug)]
pub struct EventStream {
    channel: Arc<CallChannel>,
    taken: VecDeque<Event>,
    clock: Arc<Clock>,
    /// Set while the consumer processes an event.
    away: Option<Pause>,
}

impl EventStream {
    pub(super) fn new(channel: Arc<CallChannel>, clock: Arc<Clock>) -> Self {
        Self { channel, taken: VecDeque::new(), clock, away: None }
    }

    /// Marks that the consumer asks for more.
    pub(crate) fn resume(&mut self) {
        self.away = None;
    }

    /// Marks that the next event goes to the consumer, who is busy until [`resume`](Self::resume).
    pub(crate) fn leave(&mut self) {
        self.away = self.clock.pause();
    }

    /// Returns an event that is already queued. All queued events are taken at once: the run that
    /// adds more is polled by the consumer itself.
    #[inline]
    pub(crate) fn waiting(&mut self) -> Option<Event> {
        if self.taken.is_empty() {
            self.channel.take(&mut self.taken);
        }
        self.taken.pop_front()
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        match self.taken.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None => self.channel.poll(cx),
        }
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.poll(cx)
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.channel.close();
    }
}
