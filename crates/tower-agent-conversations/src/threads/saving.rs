use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;

use crate::error::StoreError;
use crate::lease::{Lease, log_failure};

/// A save of a thread, which is made when it is awaited; created by
/// [`Keeper::keep`](crate::Keeper::keep).
#[must_use = "a save does nothing until it is awaited or detached"]
pub struct Saving {
    save: BoxFuture<'static, Result<(), StoreError>>,
    lease: Lease,
}

impl Saving {
    pub(crate) fn new(
        save: impl Future<Output = Result<(), StoreError>> + Send + 'static,
        lease: Lease,
    ) -> Self {
        let save = Box::pin(save);
        Self { save, lease }
    }

    /// Returns both saves as one: first the earlier one, whose version this one expects.
    pub fn after(self, earlier: Self) -> Self {
        let lease = self.lease.clone();
        let both = async move {
            earlier.await?;
            self.await
        };
        Self::new(both, lease)
    }

    /// Makes the save in a task of the Tokio runtime, also if the returned one, which waits for it,
    /// is never awaited: for a run whose client does not read. Outside a runtime nothing changes.
    ///
    /// [`Threads::finish`](crate::Threads::finish) waits for the task.
    pub fn in_task(self) -> Self {
        let Ok(runtime) = Handle::try_current() else {
            return self;
        };
        let Self { save, lease } = self;
        let saved = lease.in_task(&runtime, save);
        Self::new(saved, lease)
    }

    /// Makes the save at once or in a task of the Tokio runtime, for a run whose client has
    /// disconnected. An error is logged. [`Threads::finish`](crate::Threads::finish) waits for the
    /// task.
    pub fn detach(mut self) {
        if let Some(result) = (&mut self).now_or_never() {
            if let Err(error) = result {
                log_failure(self.lease.key(), &error);
            }
            return;
        }
        if Handle::try_current().is_err() {
            let conversation = &self.lease.key().id;
            return tracing::error!(
                ?conversation,
                "failed to save the progress of a run: no runtime"
            );
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
