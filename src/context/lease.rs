use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The time until which a run may start calls, by the clock of the machine: the lease of its
/// conversation, which a store renews, or a deadline, which nobody does. Clones share it.
///
/// It is asked where the run's [token](crate::AgentRequest::with_cancellation) is: before each
/// model, tool and agent. The clock is read there, so that a process that was paused, or a tool
/// that kept its thread, starts nothing that belongs to somebody else by now. Calls that have
/// started are not dropped by it.
///
/// ```
/// use std::time::{Duration, SystemTime};
///
/// use tower_agent::call::admit;
/// use tower_agent::{AgentRequest, ErrorKind, Request};
///
/// let request = AgentRequest::new("Hello.");
/// let lease = request.context().lease().clone();
/// lease.renew(SystemTime::now() + Duration::from_secs(30));
/// // Another process has the conversation now.
/// lease.end();
/// assert_eq!(admit(&request).unwrap_err().kind(), ErrorKind::Conflict);
/// ```
#[derive(Clone, Debug)]
pub struct Lease(Arc<AtomicU64>);

/// The time of a lease that does not end.
const NEVER: u64 = u64::MAX;

impl Default for Lease {
    /// One that does not end.
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(NEVER)))
    }
}

impl Lease {
    /// Lets the run start calls until then, also if the lease was over.
    pub fn renew(&self, until: SystemTime) {
        let until = until
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.0
            .store(millis(until).min(NEVER - 1), Ordering::Release);
    }

    /// Lets the run start no more calls: somebody else has what the lease was for.
    pub fn end(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Limits the run no more: what the lease was for was given back, and nobody renews it.
    pub fn release(&self) {
        self.0.store(NEVER, Ordering::Release);
    }

    /// Returns whether the run may not start calls now.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let until = self.0.load(Ordering::Acquire);
        until != NEVER && millis(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()) >= until
    }
}

fn millis(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_millis()).unwrap_or(NEVER)
}
