//! Keys of limits and caches, which users choose.

use std::sync::Arc;

use tower_agent::{Result, RunContext};

use crate::bounds;

/// Returns a key of a run, such as its user, its tenant or its region.
pub(crate) type KeyOf = Arc<dyn Fn(&RunContext) -> Result<String> + Send + Sync>;

/// Returns keys of a bounded length: a longer one is an error.
pub(crate) fn key_of(key: impl Fn(&RunContext) -> Result<String> + Send + Sync + 'static) -> KeyOf {
    Arc::new(move |run| bounds::key(key(run)?))
}
