use std::sync::Arc;

use serde_json::{Map, Value};
use tower_agent::Checkpoint;

use super::format::{FORMAT, SessionBody, Settled};
use crate::cache::Known;
use crate::error::StoreError;
use crate::key::ConversationKey;
use crate::store::{ConversationStore, StoredConversation};
use crate::time::now;

/// A session: its conversation, its open interrupts and its state.
///
/// ```
/// use tower_agent_conversations::{ConversationKey, MemoryConversations, Session};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let store = MemoryConversations::new();
/// let session = Session::load(&store, &ConversationKey::new("shop", "ada", "1")).await?;
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
    /// The id of the latest run: that which has the session, or waits.
    pub run: Option<Arc<str>>,
}

impl Session {
    /// Loads a session; returns `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, and if the session has another form, such as that of a
    /// newer version of this crate.
    pub async fn load(
        store: &impl ConversationStore,
        key: &ConversationKey,
    ) -> Result<Option<Self>, StoreError> {
        let stored = store.load(key, 0).await?;
        stored.map(|stored| Self::read(&stored)).transpose()
    }

    /// Reads a session as it is stored.
    ///
    /// # Errors
    ///
    /// Fails if it has another form, such as that of a newer version of this crate.
    pub fn read(stored: &StoredConversation) -> Result<Self, StoreError> {
        let Known { head, entries, .. } = Known::<Settled, SessionBody>::read(stored, FORMAT)?;
        let is_running = head.claim.as_ref().is_some_and(|claim| claim.until > now());
        Ok(Self {
            version: stored.version,
            checkpoint: head.body.checkpoint(&entries),
            run: head.body.run,
            state: head.body.state,
            is_running,
        })
    }
}
