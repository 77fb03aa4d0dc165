use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::common::client_side_sse::SseRetryPolicy;

use crate::client::calls::Calls;

/// The waits before further attempts to go on with a stream that ended. The first is for a server
/// that ended it in order.
const WAITS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(4),
];

/// Limits the attempts to resume a stream. rmcp would never give up, and a call to a server
/// that died would wait for its timeout.
#[derive(Debug)]
pub(super) struct StreamRetryPolicy {
    pub(super) calls: Arc<Calls>,
}

impl SseRetryPolicy for StreamRetryPolicy {
    fn retry(&self, times: usize) -> Option<Duration> {
        let wait = WAITS.get(times).copied();
        // The connection stays open without its stream. The mark makes the next call replace it.
        if wait.is_none() {
            self.calls.set_lost();
        }
        wait
    }
}
