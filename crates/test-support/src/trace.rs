//! A trace of events in order, and manual polling.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Words in the order in which they were written. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    pub fn push(&self, word: impl Into<String>) {
        self.0.lock().unwrap().push(word.into());
    }

    /// Takes the words so far.
    pub fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock().unwrap()).join(" ")
    }
}

/// Pending at the first poll.
pub async fn pending_once() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Polls at most this many times, then drops the future.
pub fn poll_times<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future: Pin<Box<dyn Future<Output = T>>> = Box::pin(future);
    let mut cx = Context::from_waker(Waker::noop());
    (0..times).find_map(|_| match future.as_mut().poll(&mut cx) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    })
}
