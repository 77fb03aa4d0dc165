use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::error::Elapsed;
use tokio::time::timeout;

/// The logins that a person is asked for. Limits of time are for servers, and wait meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Logins(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    pending: AtomicUsize,
    begun: AtomicUsize,
}

impl Logins {
    /// Counts a login until the guard is dropped.
    #[cfg(feature = "oauth")]
    pub(super) fn begin(&self) -> LoginGuard {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        self.0.pending.fetch_add(1, Ordering::SeqCst);
        LoginGuard(self.clone())
    }

    pub(super) fn is_pending(&self) -> bool {
        self.0.pending.load(Ordering::SeqCst) > 0
    }

    /// Returns the number of logins so far.
    pub(super) fn begun(&self) -> usize {
        self.0.begun.load(Ordering::SeqCst)
    }

    /// Waits for a future at most this long, and longer while a person is asked.
    pub(super) async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        loop {
            let limited = timeout(limit, &mut future).await;
            if limited.is_ok() || !self.is_pending() {
                return limited;
            }
        }
    }
}

#[cfg(feature = "oauth")]
pub(super) struct LoginGuard(Logins);

#[cfg(feature = "oauth")]
impl Drop for LoginGuard {
    fn drop(&mut self) {
        self.0.0.pending.fetch_sub(1, Ordering::SeqCst);
    }
}
