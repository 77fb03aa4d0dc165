//! The queue between a run and its consumer.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::{Event, EventKind, Invocation};
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
    state: Mutex<State<T>>,
    /// There may be capacity for the sender that has waited longest. It wakes the next one in turn:
    /// if all were woken at once, most would find the queue full again.
    room: Notify,
}

#[derive(Debug, Default)]
struct State<T> {
    events: VecDeque<Event>,
    /// Number of events that the consumer has taken, and may not have read yet.
    taken: usize,
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
}

fn gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the consumer of the stream disconnected")
}

/// The events that one agent adds at a time.
pub(super) struct EventBatch<'a> {
    invocation: &'a Arc<Invocation>,
    events: &'a mut VecDeque<Event>,
    is_over: &'a mut bool,
}

impl EventBatch<'_> {
    #[inline]
    pub(super) fn push(&mut self, kind: EventKind) {
        self.events.push_back(Event { invocation: self.invocation.clone(), kind });
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
        let State { beside, events, is_over, .. } = state;
        let told = tell(beside, &mut EventBatch { invocation, events, is_over });
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
        loop {
            let mut room = pin!(self.room.notified());
            // Registered before the check, so that no wake-up is missed in between.
            let is_notified = room.as_mut().enable();
            if !is_notified && !self.has_room()? {
                room.await;
            }
            if self.has_room()? {
                break;
            }
        }
        self.room.notify_one();
        Ok(())
    }

    fn has_room(&self) -> Result<bool> {
        let state = lock(&self.state);
        if state.is_closed { Err(gone()) } else { Ok(state.has_room(self.capacity)) }
    }

    /// Takes all events; the consumer has read those it took before. This frees capacity when it
    /// returns.
    pub(super) fn take(&self, into: &mut VecDeque<Event>) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.events, into);
        state.taken = into.len();
        let has_room = state.has_room(self.capacity);
        drop(state);
        if has_room {
            self.room.notify_one();
        }
    }

    /// Returns the next event once there is one, or `None` at the end.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
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
        let has_room = state.has_room(self.capacity);
        drop(state);
        // Dropping a waker may drop its task, which may own a sink of this stream.
        drop(before);
        if has_room {
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
