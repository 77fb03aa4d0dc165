use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::fingerprint;
use super::run_key::RunKey;
use tower_agent_conversations::StoreError;

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
    /// The row of the run in a database.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) row: i64,
    /// The run as it was before this start, in a database that can give it back.
    #[serde(skip)]
    pub(super) before: Option<Arc<Before>>,
}

/// A run before a process took it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub(super) agent: String,
    pub(super) version: String,
    /// `None` for one whose process was lost.
    pub(super) waited: Option<Waited>,
}

/// The columns of a run that waited.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Waited {
    pub(super) input: u32,
    pub(super) ended: String,
    pub(super) shared: i64,
    pub(super) summary: String,
}

fn is_none(row: &i64) -> bool {
    *row == 0
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
            row: 0,
            before: None,
        }
    }

    /// Sets the number of the run among all that have had its key, as the row in a database is. A
    /// run that was deleted and started again under its id has another one, so that a process of
    /// the deleted run writes nothing to it. Defaults to 0.
    #[must_use]
    pub fn with_row(mut self, row: i64) -> Self {
        self.row = row;
        self
    }

    /// Returns the number of the run among all that have had its [key](Self::with_row).
    #[must_use]
    pub fn row(&self) -> i64 {
        self.row
    }

    /// Returns the idempotency key of a call, if it needs another one than in a run of its id
    /// alone.
    pub(super) fn own_key(
        &self,
        key: impl FnOnce() -> String,
    ) -> Result<Option<String>, StoreError> {
        if self.conversation <= 1 && self.user.is_none() {
            return Ok(None);
        }
        let mut key = key();
        if self.conversation > 1 {
            // A call of an earlier turn of the run may have had the same id and arguments.
            key = format!("{key}-{}", self.conversation);
        }
        if let Some(user) = &self.user {
            // Another user may have a run of this id. The service is not told who the user is.
            let hash = fingerprint::hash(user, key.as_bytes())?;
            key = format!("{key}-{}", fingerprint::digits(&hash));
        }
        Ok(Some(key))
    }

    /// Returns the key under which a journal has it.
    #[must_use]
    pub fn key(&self) -> RunKey {
        RunKey::new(self.id.clone()).with_user(self.user.clone())
    }
}
