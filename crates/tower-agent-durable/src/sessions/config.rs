use std::sync::Arc;
use std::time::Duration;

use super::busy::Busy;

/// The store of sessions, and its settings.
pub(super) struct SessionConfig<S> {
    pub(super) store: Arc<S>,
    pub(super) ttl: Option<Duration>,
    pub(super) lease: Duration,
    pub(super) busy: Busy,
}

// By hand, since a derive would ask for `S: Clone`.
impl<S> Clone for SessionConfig<S> {
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
