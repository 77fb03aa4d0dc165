//! The queue between a run and its consumer.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::{EventKind, Invocation};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::on_drop::OnDrop;

/// The events between a run and its consumer, and the data under the same lock.
///
/// An event is added first, and its sender then waits until there is capacity: if the sender is
/// dropped while it waits, its event is kept. The queue therefore holds `capacity` events, plus one
/// for each waiting sender.
#[derive(Debug)]
pub(super) struct EventChannel<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    /// There may be capacity for the sender that has waited longest. It wakes the next one in turn:
    /// if all were woken at once, most would find the queue full again.
    room: Notify,
}

/// An event in the queue.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    /// `None` if it is that of the event before: most events share it, and counting the references
    /// of each would cost as much as the lock.
    pub(super) invocation: Option<Arc<Invocation>>,
    pub(super) kind: EventKind,
}

#[derive(Debug, Default)]
struct State<T> {
    events: VecDeque<QueuedEvent>,
    /// The invocation of the last event that was added.
    last: Option<Arc<Invocation>>,
    /// Number of events that the consumer has taken, and may not have read yet.
    taken: usize,
    /// Number of senders that wait for capacity.
    waiting: usize,
    beside: T,
    /// A separate waker beside the lock would cost every event another atomic operation.
    reader: Option<Waker>,
    /// The stream has ended.
    is_over: bool,
    /// The consumer has disconnected.
    is_closed: bool,
}

impl<T> State<T> {
    fn has_room(&self, capacity: usize) -> bool {
        self.events.len() + self.taken <= capacity
    }

    /// Returns whether a sender waits for capacity that there is.
    fn wakes(&self, capacity: usize) -> bool {
        self.waiting > 0 && self.has_room(capacity)
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the consumer of the stream disconnected")
}

/// The events that one agent adds at a time.
pub(super) struct EventBatch<'a> {
    invocation: &'a Arc<Invocation>,
    last: &'a mut Option<Arc<Invocation>>,
    events: &'a mut VecDeque<QueuedEvent>,
    is_over: &'a mut bool,
}

impl EventBatch<'_> {
    #[inline(always)]
    pub(super) fn push(&mut self, kind: EventKind) {
        let goes_on = self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, self.invocation));
        let invocation = if goes_on { None } else { Some(self.change()) };
        self.events.push_back(QueuedEvent { invocation, kind });
    }

    #[cold]
    fn change(&mut self) -> Arc<Invocation> {
        self.last.insert(self.invocation.clone()).clone()
    }

    /// Adds the last event: nothing follows it.
    pub(super) fn end(&mut self, kind: EventKind) {
        self.push(kind);
        *self.is_over = true;
    }
}

impl<T: Default> EventChannel<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default(), room: Notify::new() }
    }

    /// Adds events; returns whether there is capacity for more.
    #[inline]
    pub(super) fn tell<U>(
        &self,
        invocation: &Arc<Invocation>,
        tell: impl FnOnce(&mut T, &mut EventBatch<'_>) -> U,
    ) -> Result<(U, bool)> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.is_closed {
            return Err(gone());
        }
        if state.is_over {
            return Err(Error::new(ErrorKind::Cancelled, "the run has ended"));
        }
        let State { beside, events, last, is_over, .. } = state;
        let told = tell(beside, &mut EventBatch { invocation, last, events, is_over });
        let has_room = state.has_room(self.capacity);
        let reader = if state.events.is_empty() { None } else { state.reader.take() };
        drop(guard);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok((told, has_room))
    }

    /// Accesses the data beside the events without adding events.
    pub(super) fn look<U>(&self, look: impl FnOnce(&mut T) -> U) -> U {
        look(&mut lock(&self.state).beside)
    }

    /// Waits for capacity.
    pub(super) async fn room(&self) -> Result<()> {
        let mut turn = None;
        loop {
            let mut room = pin!(self.room.notified());
            // Registered before the check, so that no wake-up is missed in between.
            room.as_mut().enable();
            if self.has_room(&mut turn)? {
                return Ok(());
            }
            room.await;
        }
    }

    /// Returns whether there is capacity; if not, the sender waits until its turn is dropped.
    fn has_room<'a>(&'a self, turn: &mut Option<OnDrop<&'a Self>>) -> Result<bool> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(gone());
        }
        if state.has_room(self.capacity) {
            return Ok(true);
        }
        if turn.is_none() {
            state.waiting += 1;
            *turn = Some(OnDrop::new(self, |channel| channel.end_turn()));
        }
        Ok(false)
    }

    /// Ends the wait of a sender, and wakes the next one.
    fn end_turn(&self) {
        let mut state = lock(&self.state);
        state.waiting -= 1;
        let wakes = state.wakes(self.capacity);
        drop(state);
        if wakes {
            self.room.notify_one();
        }
    }

    /// Takes all events; the consumer has read those it took before. This frees capacity when it
    /// returns.
    pub(super) fn take(&self, into: &mut VecDeque<QueuedEvent>) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.events, into);
        state.taken = into.len();
        let wakes = state.wakes(self.capacity);
        drop(state);
        if wakes {
            self.room.notify_one();
        }
    }

    /// Returns the next event once there is one, or `None` at the end.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<QueuedEvent>> {
        let mut state = lock(&self.state);
        state.taken = 0;
        let mut before = None;
        let poll = match state.events.pop_front() {
            None if !state.is_over => {
                before = state.reader.replace(cx.waker().clone());
                Poll::Pending
            }
            next => Poll::Ready(next),
        };
        let wakes = state.wakes(self.capacity);
        drop(state);
        // Dropping a waker may drop its task, which may own a sink of this stream.
        drop(before);
        if wakes {
            self.room.notify_one();
        }
        poll
    }

    /// Ends the stream.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Disconnects the consumer.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let events = std::mem::take(&mut state.events);
        drop(state);
        drop(events);
        self.room.notify_waiters();
    }
}
