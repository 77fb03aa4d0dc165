use std::sync::Arc;
use std::time::SystemTime;

use crate::bounds::NAME;
use crate::error::StoreError;
use crate::key::ConversationKey;
use crate::policy::Policy;
use crate::time::{millis, time};

/// A query for [`list`](crate::ConversationStore::list): which conversations, and where the page
/// starts.
///
/// ```
/// use tower_agent_conversations::{ConversationQuery, ConversationStore, MemoryConversations};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let store = MemoryConversations::new();
/// let mut query = ConversationQuery::new().app("shop").user("ada").limit(20);
/// loop {
///     let page = store.list(&query).await?;
///     for found in &page {
///         println!("{}: {:?}", found.key.id, found.updated_at);
///     }
///     let Some(last) = page.last() else { break };
///     query = query.after(last);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversationQuery {
    /// The application; `None` for all.
    pub app: Option<Arc<str>>,
    /// The user; `None` for all, and an empty string for conversations without one.
    pub user: Option<Arc<str>>,
    /// The [kind](crate::Append::kind); `None` for all.
    pub kind: Option<Arc<str>>,
    /// Only conversations with open interrupts.
    pub is_waiting: bool,
    /// The last conversation of the page before.
    pub after: Option<ConversationInfo>,
    /// The maximum number of conversations.
    pub limit: u32,
}

impl ConversationQuery {
    /// Creates a query for the first 100 conversations of all applications and users.
    #[must_use]
    pub fn new() -> Self {
        Self {
            app: None,
            user: None,
            kind: None,
            is_waiting: false,
            after: None,
            limit: 100,
        }
    }

    /// Selects the conversations of one application.
    #[must_use]
    pub fn app(mut self, app: impl Into<Arc<str>>) -> Self {
        self.app = Some(app.into());
        self
    }

    /// Selects the conversations of one user.
    #[must_use]
    pub fn user(mut self, user: impl Into<Arc<str>>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Selects a [kind](crate::Append::kind): `session`, or `thread` for those of a server.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Selects the conversations that have open interrupts.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.is_waiting = true;
        self
    }

    /// Continues after this conversation, the last of the page before.
    #[must_use]
    pub fn after(mut self, last: &ConversationInfo) -> Self {
        self.after = Some(last.clone());
        self
    }

    /// Sets the maximum number of conversations. Defaults to 100.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }

    /// Returns whether a page of this query may have the conversation, for a store of your own.
    #[must_use]
    pub fn selects(&self, found: &ConversationInfo) -> bool {
        let is = |wanted: &Option<Arc<str>>, has: &Arc<str>| {
            wanted.as_ref().is_none_or(|wanted| wanted == has)
        };
        let is_behind = |after: &ConversationInfo| found.position() < after.position();
        is(&self.app, &found.key.app)
            && is(&self.user, &found.key.user)
            && is(&self.kind, &found.kind)
            && (!self.is_waiting || found.is_waiting)
            && self.after.as_ref().is_none_or(is_behind)
    }

    /// Fails for a query that a database cannot be asked, for a store of your own.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Id`].
    pub fn check(&self) -> Result<(), StoreError> {
        let text = |id: &Option<Arc<str>>| id.clone().unwrap_or_default();
        StoreError::check_id("application", &text(&self.app), NAME)?;
        StoreError::check_id("user", &text(&self.user), NAME)
    }
}

impl Default for ConversationQuery {
    fn default() -> Self {
        Self::new()
    }
}

/// One conversation of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConversationInfo {
    /// The key.
    pub key: ConversationKey,
    /// The [kind](crate::Append::kind).
    pub kind: Arc<str>,
    /// The version.
    pub version: u64,
    /// The time of the last write, in whole milliseconds.
    pub updated_at: SystemTime,
    /// The conversation has open interrupts.
    pub is_waiting: bool,
    /// The time at which it expires, if it does.
    pub expires_at: Option<SystemTime>,
}

impl ConversationInfo {
    /// Creates an entry of a list, for a store of your own: of kind `session`, without open
    /// interrupts. The time is rounded down to a millisecond: a store or a page that goes on behind
    /// the entry may have no other times, and would pass over what is of the same millisecond.
    #[must_use]
    pub fn new(key: ConversationKey, version: u64, updated_at: SystemTime) -> Self {
        Self {
            key,
            kind: Policy::Session.kind().into(),
            version,
            updated_at: time(millis(updated_at)),
            is_waiting: false,
            expires_at: None,
        }
    }

    /// Sets the [kind](crate::Append::kind).
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Sets whether the conversation has open interrupts.
    #[must_use]
    pub fn waiting(mut self, is_waiting: bool) -> Self {
        self.is_waiting = is_waiting;
        self
    }

    /// Sets when the conversation expires.
    #[must_use]
    pub fn expires_at(mut self, at: Option<SystemTime>) -> Self {
        self.expires_at = at;
        self
    }

    /// Returns the place in a list, which shows the latest conversation first.
    pub(crate) fn position(&self) -> (SystemTime, &ConversationKey) {
        (self.updated_at, &self.key)
    }
}
