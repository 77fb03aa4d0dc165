use serde_json::{Map, Value};
use tower_agent::Checkpoint;

use super::format::{SessionHead, read_entries};
use super::key::SessionKey;
use super::store::{SessionStore, StoredSession};
use crate::error::StoreError;
use crate::time::now;

/// A session: its conversation, its open interrupts and its state.
///
/// ```
/// use tower_agent_durable::{Session, SessionKey, Sqlite};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let store = Sqlite::in_memory().await?;
/// let session = Session::load(&store, &SessionKey::new("shop", "ada", "1")).await?;
/// assert!(session.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Session {
    /// The version.
    pub version: u64,
    /// The messages and the open interrupts.
    pub checkpoint: Checkpoint,
    /// The state.
    pub state: Map<String, Value>,
    /// A run has the session, and its lease has not ended.
    pub is_running: bool,
}

impl Session {
    /// Loads a session; returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, and if the session has another form, such as that of a
    /// newer version of this crate.
    pub async fn load(
        store: &impl SessionStore,
        key: &SessionKey,
    ) -> Result<Option<Self>, StoreError> {
        store
            .load(key)
            .await?
            .map(|stored| Self::read(&stored))
            .transpose()
    }

    /// Reads a session as it is stored.
    ///
    /// # Errors
    ///
    /// Fails if it has another form, such as that of a newer version of this crate.
    pub fn read(stored: &StoredSession) -> Result<Self, StoreError> {
        let head = SessionHead::read(&stored.head)?;
        let is_running = head.claim.as_ref().is_some_and(|claim| claim.until > now());
        Ok(Self {
            version: stored.version,
            checkpoint: head.checkpoint(&read_entries(stored)?),
            state: head.state,
            is_running,
        })
    }
}
