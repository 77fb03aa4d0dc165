use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::busy::Busy;
use crate::error::StoreError;
use crate::key::ConversationKey;
use crate::lease::log_failure;

/// A save of a thread, which is made when it is awaited; created by
/// [`Keeper::keep`](crate::Keeper::keep).
#[must_use = "a save does nothing until it is awaited or detached"]
pub struct Saving {
    save: BoxFuture<'static, Result<(), StoreError>>,
    /// The conversations to which tasks are writing.
    busy: Busy,
    key: ConversationKey,
}

impl Saving {
    pub(crate) fn new(
        save: impl Future<Output = Result<(), StoreError>> + Send + 'static,
        busy: Busy,
        key: ConversationKey,
    ) -> Self {
        let save = Box::pin(save);
        Self { save, busy, key }
    }

    /// Returns both saves as one: first the earlier one, whose version this one expects.
    pub fn after(self, earlier: Self) -> Self {
        let busy = self.busy.clone();
        let key = self.key.clone();
        let both = async move {
            earlier.await?;
            self.await
        };
        Self::new(both, busy, key)
    }

    /// Makes the save in a task of the Tokio runtime, also if the returned one, which waits for it,
    /// is never awaited: for a run whose client does not read. Outside a runtime nothing changes.
    ///
    /// [`Threads::finish`](crate::Threads::finish) waits for the task.
    pub fn in_task(self) -> Self {
        let Ok(runtime) = Handle::try_current() else {
            return self;
        };
        let (send, saved) = oneshot::channel();
        let busy = self.busy.clone();
        let key = self.key.clone();
        let writing = busy.write(key.clone());
        runtime.spawn(async move {
            let result = self.await;
            drop(writing);
            // Nobody waits for it any more.
            if let Err(Err(error)) = send.send(result) {
                log_failure(&error);
            }
        });
        let saved = async move {
            saved
                .await
                .unwrap_or_else(|_| Err(StoreError::database("the runtime is shutting down")))
        };
        Self::new(saved, busy, key)
    }

    /// Makes the save at once or in a task of the Tokio runtime, for a run whose client has
    /// disconnected. An error is logged. [`Threads::finish`](crate::Threads::finish) waits for the
    /// task.
    pub fn detach(mut self) {
        if let Some(result) = (&mut self).now_or_never() {
            if let Err(error) = result {
                log_failure(&error);
            }
            return;
        }
        if Handle::try_current().is_err() {
            return tracing::error!("failed to save the progress of a run: no runtime");
        }
        drop(self.in_task());
    }
}

impl Future for Saving {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.save.as_mut().poll(cx)
    }
}

impl fmt::Debug for Saving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saving").finish_non_exhaustive()
    }
}
