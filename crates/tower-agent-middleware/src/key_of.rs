//! Keys of limits and caches, which users choose.

use std::sync::Arc;

use tower_agent::{Result, RunContext};

/// Returns a key of a run, such as its user, its tenant or its region.
pub(crate) type KeyOf = Arc<dyn Fn(&RunContext) -> Result<String> + Send + Sync>;
