use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tower_agent::error::BoxError;

/// A save of a thread, which is made when it is awaited; created by
/// [`Keeper::keep`](crate::Keeper::keep).
#[must_use = "a save does nothing until it is awaited or detached"]
pub struct Saving(BoxFuture<'static, Result<(), BoxError>>);

impl Saving {
    pub(crate) fn new(saving: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Self {
        Self(Box::pin(saving))
    }

    /// Returns both saves as one: first the earlier one, whose version this one expects.
    pub fn after(self, earlier: Self) -> Self {
        Self::new(async move {
            earlier.await?;
            self.await
        })
    }

    /// Makes the save at once or in a task of the Tokio runtime, for a run whose client has
    /// disconnected. An error is logged.
    pub fn detach(mut self) {
        if let Some(result) = (&mut self).now_or_never() {
            return log(result);
        }
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { log(self.await) })),
            Err(_) => tracing::error!("failed to save the progress of a run: no runtime"),
        }
    }
}

fn log(result: Result<(), BoxError>) {
    if let Err(error) = result {
        tracing::error!(error = %error.to_string().escape_debug(), "failed to save the progress of a run");
    }
}

impl Future for Saving {
    type Output = Result<(), BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Saving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Saving").finish_non_exhaustive()
    }
}
