use std::sync::Arc;
use std::time::Duration;

use super::busy::Busy;

/// How sessions are kept.
pub(super) struct Keeping<S> {
    pub(super) store: Arc<S>,
    pub(super) ttl: Option<Duration>,
    pub(super) lease: Duration,
    pub(super) busy: Busy,
}

impl<S> Clone for Keeping<S> {
    fn clone(&self) -> Self {
        let Self {
            store,
            ttl,
            lease,
            busy,
        } = self;
        Self {
            store: store.clone(),
            ttl: *ttl,
            lease: *lease,
            busy: busy.clone(),
        }
    }
}
