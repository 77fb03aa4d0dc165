//! The queue between a run and its consumer.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use super::event::{EventKind, Invocation};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;

/// The events between a run and its consumer, and the data under the same lock.
///
/// An event is added first, and its sender then waits until there is capacity: if the sender is
/// dropped while it waits, its event is kept. The queue therefore holds `capacity` events, plus one
/// for each waiting sender.
#[derive(Debug)]
pub(super) struct EventChannel<T> {
    capacity: usize,
    state: Mutex<ChannelState<T>>,
}

#[derive(Debug)]
pub(super) struct QueuedEvent {
    /// `None` if it is that of the event before: most events share it, and counting the references
    /// of each would cost as much as the lock.
    pub(super) invocation: Option<Arc<Invocation>>,
    pub(super) kind: EventKind,
}

#[derive(Debug, Default)]
struct EventQueue {
    events: VecDeque<QueuedEvent>,
    /// The invocation of the last event that was added.
    last: Option<Arc<Invocation>>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct ChannelState<T> {
    queue: EventQueue,
    /// Number of events that the consumer has taken, and may not have read yet.
    taken: usize,
    beside: T,
    /// The senders that wait for capacity and were not woken, by their turn. With a
    /// [`Notify`](tokio::sync::Notify) they would need its lock as well, and a longer future.
    waiting: BTreeMap<u64, Waker>,
    turn: u64,
    /// A separate waker beside the lock would cost every event another atomic operation.
    reader: Option<Waker>,
    is_closed: bool,
}

impl<T> ChannelState<T> {
    fn has_room(&self, capacity: usize) -> bool {
        self.queue.events.len() + self.taken <= capacity
    }

    /// Takes the waker of the sender that has waited longest, if there is capacity for it. It wakes
    /// the next one in turn: if all were woken at once, most would find the queue full again.
    fn next_sender(&mut self, capacity: usize) -> Option<Waker> {
        if !self.has_room(capacity) {
            return None;
        }
        self.waiting.pop_first().map(|(_, sender)| sender)
    }
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Cancelled,
        "the consumer of the stream disconnected",
    )
}

/// Adds events of one invocation, under the lock of the channel.
pub(super) struct EventBatch<'a> {
    invocation: &'a Arc<Invocation>,
    queue: &'a mut EventQueue,
}

impl EventBatch<'_> {
    #[inline(always)]
    pub(super) fn push(&mut self, kind: EventKind) {
        let last = self.queue.last.as_ref();
        let is_same = last.is_some_and(|last| Arc::ptr_eq(last, self.invocation));
        let change = || self.queue.last.insert(self.invocation.clone()).clone();
        let invocation = (!is_same).then(change);
        self.queue
            .events
            .push_back(QueuedEvent { invocation, kind });
    }

    /// Adds the last event: nothing follows it.
    pub(super) fn end(&mut self, kind: EventKind) {
        self.push(kind);
        self.queue.is_over = true;
    }
}

impl<T: Default> EventChannel<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            state: Mutex::default(),
        }
    }

    /// Adds events; returns whether there is capacity for more.
    #[inline]
    pub(super) fn add<U>(
        &self,
        invocation: &Arc<Invocation>,
        fill: impl FnOnce(&mut T, &mut EventBatch<'_>) -> U,
    ) -> Result<(U, bool)> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.is_closed {
            return Err(gone());
        }
        if state.queue.is_over {
            return Err(Error::new(ErrorKind::Cancelled, "the run has ended"));
        }
        let queue = &mut state.queue;
        let result = fill(&mut state.beside, &mut EventBatch { invocation, queue });
        let has_room = state.has_room(self.capacity);
        // Not every `tell` adds an event, and a reader that is woken for none polls in vain.
        let reader = if state.queue.events.is_empty() {
            None
        } else {
            state.reader.take()
        };
        // Woken without the lock: a waker may run the reader at once, which takes it.
        drop(guard);
        wake(reader);
        Ok((result, has_room))
    }

    /// Accesses the data beside the events without adding events.
    pub(super) fn look<U>(&self, look: impl FnOnce(&mut T) -> U) -> U {
        look(&mut lock(&self.state).beside)
    }

    pub(super) fn room(&self) -> Room<'_, T> {
        Room {
            channel: self,
            turn: None,
        }
    }

    /// Takes all events; the consumer has read those it took before. This frees capacity when it
    /// returns.
    pub(super) fn take(&self, into: &mut VecDeque<QueuedEvent>) {
        let mut state = lock(&self.state);
        // Swapped, so that the two queues keep their capacity and nothing is copied.
        std::mem::swap(&mut state.queue.events, into);
        // They count against the capacity until they are read: the two queues would hold twice as
        // much.
        state.taken = into.len();
        let sender = state.next_sender(self.capacity);
        drop(state);
        wake(sender);
    }

    /// Returns the next event once there is one, or `None` at the end.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<QueuedEvent>> {
        let mut state = lock(&self.state);
        // The consumer asks for more, so it has read what it took.
        state.taken = 0;
        let mut earlier = None;
        let poll = match state.queue.events.pop_front() {
            None if !state.queue.is_over => {
                earlier = state.reader.replace(cx.waker().clone());
                Poll::Pending
            }
            next => Poll::Ready(next),
        };
        let sender = state.next_sender(self.capacity);
        drop(state);
        // Dropping a waker may drop its task, which may own a sink of this stream.
        drop(earlier);
        wake(sender);
        poll
    }

    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.queue.is_over = true;
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        // Senders find it closed and stop the run; the events are dropped without the lock, since
        // they may own values with a `Drop` of their own.
        state.is_closed = true;
        let events = std::mem::take(&mut state.queue.events);
        let senders = std::mem::take(&mut state.waiting);
        drop(state);
        drop(events);
        for sender in senders.into_values() {
            sender.wake();
        }
    }
}

#[derive(Debug)]
pub(super) struct Room<'a, T> {
    channel: &'a EventChannel<T>,
    /// `None` if it need not wait. Kept once it is woken: another one may have been faster.
    turn: Option<u64>,
}

impl<T> Room<'_, T> {
    /// Ends the wait, and wakes the next sender.
    fn leave(&mut self, mut state: MutexGuard<'_, ChannelState<T>>) {
        let Some(turn) = self.turn.take() else { return };
        let own = state.waiting.remove(&turn);
        // A sender that was woken and is dropped instead must pass its turn on, or the next would
        // wait for ever.
        let next = state.next_sender(self.channel.capacity);
        drop(state);
        drop(own);
        wake(next);
    }
}

impl<T> Future for Room<'_, T> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = lock(&self.channel.state);
        if state.is_closed {
            return Poll::Ready(Err(gone()));
        }
        if state.has_room(self.channel.capacity) {
            self.leave(state);
            return Poll::Ready(Ok(()));
        }
        let turn = *self.turn.get_or_insert_with(|| {
            state.turn += 1;
            state.turn
        });
        let earlier = state.waiting.insert(turn, cx.waker().clone());
        // Dropped without the lock, as in `EventChannel::poll`.
        drop(state);
        drop(earlier);
        Poll::Pending
    }
}

impl<T> Drop for Room<'_, T> {
    fn drop(&mut self) {
        if self.turn.is_some() {
            self.leave(lock(&self.channel.state));
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
