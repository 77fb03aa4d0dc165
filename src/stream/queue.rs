use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::Event;
use crate::lock::lock;

/// The events between a run and its reader.
///
/// Whoever tells something puts it here first, and then waits until there is room again: a call
/// that is dropped while it waits has still told what it had to. So the queue holds `capacity`
/// events, and one telling more of each that waits.
#[derive(Debug)]
pub(super) struct Queue {
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    /// Those that wait for room.
    tellers: Vec<Waker>,
    reader: Option<Waker>,
    /// Nobody can tell anything any more.
    is_over: bool,
    /// Nobody reads any more.
    is_closed: bool,
}

/// The reader has gone.
#[derive(Debug)]
pub(super) struct Closed;

impl Queue {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), state: Mutex::default() }
    }

    /// Tells something; whether there is room for more.
    pub(super) fn push(&self, events: impl Iterator<Item = Event>) -> Result<bool, Closed> {
        let mut state = lock(&self.state);
        if state.is_closed {
            return Err(Closed);
        }
        state.events.extend(events);
        let has_room = state.events.len() <= self.capacity;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(has_room)
    }

    /// Waits for room.
    pub(super) async fn room(&self) -> Result<(), Closed> {
        poll_fn(|cx| {
            let mut state = lock(&self.state);
            if state.is_closed {
                return Poll::Ready(Err(Closed));
            }
            if state.events.len() <= self.capacity {
                return Poll::Ready(Ok(()));
            }
            if !state.tellers.iter().any(|waker| waker.will_wake(cx.waker())) {
                state.tellers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// The next event, if there is one.
    pub(super) fn pop(&self) -> Option<Event> {
        let mut state = lock(&self.state);
        let event = state.events.pop_front();
        let tellers = match state.events.len() <= self.capacity {
            true => std::mem::take(&mut state.tellers),
            false => Vec::new(),
        };
        drop(state);
        tellers.into_iter().for_each(Waker::wake);
        event
    }

    /// The next event, once there is one; `None` when there can be none any more.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(event) = self.pop() {
            return Poll::Ready(Some(event));
        }
        let mut state = lock(&self.state);
        match state.events.pop_front() {
            // It came in between.
            Some(event) => Poll::Ready(Some(event)),
            None if state.is_over => Poll::Ready(None),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
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
        tellers.into_iter().for_each(Waker::wake);
    }
}
