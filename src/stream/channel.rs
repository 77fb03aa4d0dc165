//! The queue between a run and its reader.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

use super::{Event, EventKind, Invocation};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;

/// The events between a run and its reader, and what is kept under the same lock.
///
/// Whoever tells something puts it here first, and then waits until there is room again: a call
/// that is dropped while it waits has still told what it had to. So the queue holds `capacity`
/// events, and one telling more of each that waits.
#[derive(Debug)]
pub(super) struct EventChannel<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    /// There may be room for the one that has waited longest. It has told what it had to before it
    /// waited, so it passes the word on: were all woken at once, all but a few would find the queue
    /// full again.
    room: Notify,
}

#[derive(Debug, Default)]
struct State<T> {
    events: VecDeque<Event>,
    /// How many the reader has taken, and may not have read yet.
    taken: usize,
    beside: T,
    /// No waker of its own beside the lock: that would cost every event another atomic step.
    reader: Option<Waker>,
    /// Nobody can tell anything any more.
    is_over: bool,
    /// Nobody reads any more.
    is_closed: bool,
}

impl<T> State<T> {
    fn has_room(&self, capacity: usize) -> bool {
        self.events.len() + self.taken <= capacity
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the reader of the stream went away")
}

/// Where one agent tells what happens.
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

    /// The last event: nothing comes after it, whoever would tell it.
    pub(super) fn end(&mut self, kind: EventKind) {
        self.push(kind);
        *self.is_over = true;
    }
}

impl<T: Default> EventChannel<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default(), room: Notify::new() }
    }

    /// Tells something; whether there is room for more.
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
            return Err(Error::new(ErrorKind::Cancelled, "the run is over"));
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

    /// Looks at what is kept beside the events, or changes it, and tells nothing.
    pub(super) fn look<U>(&self, look: impl FnOnce(&mut T) -> U) -> U {
        look(&mut lock(&self.state).beside)
    }

    /// Waits for room.
    pub(super) async fn room(&self) -> Result<()> {
        let mut room = pin!(self.room.notified());
        loop {
            // Before it looks, so that no word is missed between the two.
            room.as_mut().enable();
            if self.has_room()? {
                break;
            }
            room.as_mut().await;
            room.set(self.room.notified());
        }
        self.room.notify_one();
        Ok(())
    }

    fn has_room(&self) -> Result<bool> {
        let state = lock(&self.state);
        if state.is_closed { Err(gone()) } else { Ok(state.has_room(self.capacity)) }
    }

    /// The reader has read all that it took before, and takes all there is. It makes room when it
    /// comes back.
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

    /// The next event, once there is one; `None` when there can be none any more.
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
        // With a waker the task goes that it was for, and what that holds: maybe a sink of ours.
        drop(before);
        if has_room {
            self.room.notify_one();
        }
        poll
    }

    /// Nobody tells anything any more.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Nobody reads any more.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let events = std::mem::take(&mut state.events);
        drop(state);
        drop(events);
        self.room.notify_waiters();
    }
}
