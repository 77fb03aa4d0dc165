use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use slab::Slab;

use super::batch::EventBatch;
use super::call::Call;
use super::{Event, Invocation};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;

/// The events between a run and its reader.
///
/// Whoever tells something puts it here first, and then waits until there is room again: a call
/// that is dropped while it waits has still told what it had to. So the queue holds `capacity`
/// events, and one telling more of each that waits.
///
/// What is seen of the model calls is kept under the same lock: what is decided of a call and what
/// is told of it cannot come apart.
#[derive(Debug)]
pub(super) struct EventChannel {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// How many the reader has taken, and may not have read yet.
    taken: usize,
    calls: Calls,
    /// Those that wait for room.
    tellers: BTreeMap<u64, Waker>,
    /// How many have waited.
    waits: u64,
    reader: Option<Waker>,
    /// Nobody can tell anything any more.
    is_over: bool,
    /// Nobody reads any more.
    is_closed: bool,
}

impl State {
    fn has_room(&self, capacity: usize) -> bool {
        self.events.len() + self.taken <= capacity
    }

    /// The one that has waited longest for room, if there is some now. It has told what it had to
    /// before it waited, so it passes the word on: were all woken at once, all but a few would find
    /// the queue full again.
    fn next_teller(&mut self, capacity: usize) -> Option<Waker> {
        if !self.has_room(capacity) {
            return None;
        }
        self.tellers.pop_first().map(|(_, teller)| teller)
    }
}

/// What is seen of the model calls that are under way.
pub(super) type Calls = Slab<Call>;

fn gone() -> Error {
    Error::new(ErrorKind::Cancelled, "the reader of the stream went away")
}

impl EventChannel {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default() }
    }

    /// Tells something; whether there is room for more.
    #[inline]
    pub(super) fn tell<T>(
        &self,
        invocation: &Arc<Invocation>,
        tell: impl FnOnce(&mut Calls, &mut EventBatch<'_>) -> T,
    ) -> Result<(T, bool)> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.is_closed {
            return Err(gone());
        }
        if state.is_over {
            return Err(Error::new(ErrorKind::Cancelled, "the run is over"));
        }
        let State { calls, events, is_over, .. } = state;
        let told = tell(calls, &mut EventBatch { invocation, events, is_over });
        let has_room = state.has_room(self.capacity);
        let reader = if state.events.is_empty() { None } else { state.reader.take() };
        drop(guard);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok((told, has_room))
    }

    /// A model call begins, which is seen as this message.
    pub(super) fn enter(self: &Arc<Self>, message: Arc<str>) -> Entered {
        let key = lock(&self.state).calls.insert(Call::new(message));
        Entered { queue: self.clone(), key }
    }

    /// Waits for room.
    pub(super) async fn room(&self) -> Result<()> {
        let mut wait = Wait { queue: self, number: None };
        poll_fn(|cx| wait.poll(cx)).await
    }

    /// The reader has read all that it took before, and takes all there is. It makes room when it
    /// comes back.
    pub(super) fn take(&self, into: &mut VecDeque<Event>) {
        let mut state = lock(&self.state);
        std::mem::swap(&mut state.events, into);
        state.taken = into.len();
        let teller = state.next_teller(self.capacity);
        drop(state);
        wake(teller);
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
        let teller = state.next_teller(self.capacity);
        drop(state);
        // With a waker the task goes that it was for, and what that holds: maybe a sink of ours.
        drop(before);
        wake(teller);
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
        let (events, tellers) =
            (std::mem::take(&mut state.events), std::mem::take(&mut state.tellers));
        drop(state);
        drop(events);
        tellers.into_iter().for_each(|(_, teller)| teller.wake());
    }
}

/// One that waits for room.
struct Wait<'a> {
    queue: &'a EventChannel,
    number: Option<u64>,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut state = lock(&self.queue.state);
        if state.is_closed {
            return Poll::Ready(Err(gone()));
        }
        if state.has_room(self.queue.capacity) {
            return Poll::Ready(Ok(()));
        }
        let number = *self.number.get_or_insert_with(|| {
            state.waits += 1;
            state.waits
        });
        let before = state.tellers.insert(number, cx.waker().clone());
        drop(state);
        // With a waker the task may go that it was for, and what that holds.
        drop(before);
        Poll::Pending
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut state = lock(&self.queue.state);
        let own = state.tellers.remove(&number);
        let next = state.next_teller(self.queue.capacity);
        drop(state);
        drop(own);
        wake(next);
    }
}

fn wake(teller: Option<Waker>) {
    if let Some(teller) = teller {
        teller.wake();
    }
}

/// A model call that is under way: where the queue keeps what is seen of it.
#[derive(Debug)]
pub(super) struct Entered {
    queue: Arc<EventChannel>,
    key: usize,
}

impl Entered {
    pub(super) fn of<'a>(&self, calls: &'a mut Calls) -> &'a mut Call {
        &mut calls[self.key]
    }

    /// Looks at the call, or changes it, and tells nothing.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut Call) -> T) -> T {
        look(self.of(&mut lock(&self.queue.state).calls))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(lock(&self.queue.state).calls.try_remove(self.key));
    }
}
