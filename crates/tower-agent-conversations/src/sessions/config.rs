use super::format::Sessions;
use crate::lease::Terms;
use crate::store::BoxStore;

/// The store of sessions, and its settings.
#[derive(Clone)]
pub(super) struct SessionConfig {
    pub(super) store: BoxStore,
    pub(super) terms: Terms,
    pub(super) sessions: Sessions,
}
