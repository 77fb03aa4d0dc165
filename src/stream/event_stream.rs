use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use futures_util::Stream;

use super::call::CallChannel;
use super::channel::QueuedEvent;
use super::consumer_wait::{Clock, Pause};
use super::event::{Event, EventKind, Invocation};

/// The events of a run, in order, as they happen.
///
/// It ends when no more events can follow.
#[derive(Debug)]
pub struct EventStream {
    channel: Arc<CallChannel>,
    taken: VecDeque<QueuedEvent>,
    invocation: Arc<Invocation>,
    /// The time at which `taken` was filled. The run is polled by the consumer, so that its events
    /// have happened just before.
    time: SystemTime,
    number: u64,
    clock: Arc<Clock>,
    /// The consumer's time with the current event, while it is measured.
    away: Option<Pause>,
}

impl EventStream {
    pub(super) fn new(
        channel: Arc<CallChannel>,
        clock: Arc<Clock>,
        invocation: Arc<Invocation>,
    ) -> Self {
        Self {
            channel,
            taken: VecDeque::new(),
            invocation,
            time: SystemTime::UNIX_EPOCH,
            number: 0,
            clock,
            away: None,
        }
    }

    /// Marks that the consumer asks for more.
    #[inline]
    pub(crate) fn resume(&mut self) {
        // Dropping the pause adds its time.
        self.away = None;
    }

    /// Marks that the next event goes to the consumer, who is busy until [`resume`](Self::resume).
    #[inline]
    pub(crate) fn leave(&mut self) {
        self.away = self.clock.pause();
    }

    /// Returns whether an event is there. All are taken at once: the consumer polls what adds more.
    #[inline]
    pub(crate) fn is_ready(&mut self) -> bool {
        if self.taken.is_empty() {
            self.channel.take(&mut self.taken);
            if self.taken.is_empty() {
                return false;
            }
            self.time = SystemTime::now();
        }
        true
    }

    /// Takes what is queued beside what is still to be read; returns whether there was anything.
    pub(crate) fn take_more(&mut self, cx: &mut Context<'_>) -> bool {
        let before = self.taken.len();
        while let Poll::Ready(Some(event)) = self.channel.poll(cx) {
            self.taken.push_back(event);
        }
        self.time = SystemTime::now();
        self.taken.len() > before
    }

    /// Returns whether output is among the events that were taken; see [`EventKind::is_output`].
    pub(crate) fn has_output(&self) -> bool {
        self.taken.iter().any(|event| event.kind.is_output())
    }

    /// Waits for an event; returns `false` at the end.
    pub(crate) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.taken.is_empty() {
            let event = ready!(self.channel.poll(cx));
            self.taken.extend(event);
            self.time = SystemTime::now();
        }
        Poll::Ready(!self.taken.is_empty())
    }

    #[inline]
    pub(crate) fn ready(&self) -> Option<(&Arc<Invocation>, &EventKind)> {
        let QueuedEvent { invocation, kind } = self.taken.front()?;
        Some((invocation.as_ref().unwrap_or(&self.invocation), kind))
    }

    /// Takes the next event that is ready; its invocation is kept for those that follow.
    #[inline]
    pub(crate) fn take_ready(&mut self) -> Option<EventKind> {
        let QueuedEvent { invocation, kind } = self.taken.pop_front()?;
        if let Some(invocation) = invocation {
            self.invocation = invocation;
        }
        self.number += 1;
        Some(kind)
    }

    #[inline]
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        let number = self.number;
        let kind = self.take_ready()?;
        Some(Event {
            number,
            time: self.time,
            invocation: self.invocation.clone(),
            kind,
        })
    }
}

impl Stream for EventStream {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        ready!(self.poll_ready(cx));
        Poll::Ready(self.take_event())
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        // Wakes the senders that wait for capacity, so that a run in another task ends.
        self.channel.close();
    }
}
