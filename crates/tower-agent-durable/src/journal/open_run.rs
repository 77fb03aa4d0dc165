use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A run that this process executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenRun {
    /// Its id.
    pub id: Arc<str>,
    /// The number of times that it was started or taken over.
    pub epoch: u64,
    /// The number of its latest request.
    pub input: u32,
    /// The number of the request that began its conversation.
    pub conversation: u32,
}

impl OpenRun {
    /// Creates an open run, for a journal of your own.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>, epoch: u64, input: u32, conversation: u32) -> Self {
        Self {
            id: id.into(),
            epoch,
            input,
            conversation,
        }
    }
}
