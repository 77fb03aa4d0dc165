use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::run_key::RunKey;

/// A run that this process executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenRun {
    /// Its id.
    pub id: Arc<str>,
    /// The user whom it belongs to, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Arc<str>>,
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
    pub fn new(key: impl Into<RunKey>, epoch: u64, input: u32, conversation: u32) -> Self {
        let RunKey { user, run } = key.into();
        Self {
            id: run,
            user,
            epoch,
            input,
            conversation,
        }
    }

    /// Returns the key under which a journal has it.
    #[must_use]
    pub fn key(&self) -> RunKey {
        RunKey::new(self.id.clone()).with_user(self.user.clone())
    }
}
