use std::sync::Arc;
use std::time::SystemTime;

use super::key::SessionKey;

/// A query for [`list`](super::SessionStore::list).
///
/// ```
/// use tower_agent_durable::SessionQuery;
///
/// let query = SessionQuery::of_app("shop").user("ada").limit(20);
/// # drop(query);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionQuery {
    /// The application.
    pub app: Arc<str>,
    /// The user; `None` for all.
    pub user: Option<Arc<str>>,
    /// The last key of the page before.
    pub after: Option<SessionKey>,
    /// The maximum number of sessions.
    pub limit: u32,
}

impl SessionQuery {
    /// Creates a query for the first 100 sessions of an application.
    pub fn of_app(app: impl Into<Arc<str>>) -> Self {
        Self {
            app: app.into(),
            user: None,
            after: None,
            limit: 100,
        }
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, user: impl Into<Arc<str>>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Continues after this key, the last of the page before.
    #[must_use]
    pub fn after(mut self, key: SessionKey) -> Self {
        self.after = Some(key);
        self
    }

    /// Sets the maximum number of sessions. Defaults to 100.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
}

/// One session of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The key.
    pub key: SessionKey,
    /// The version.
    pub version: u64,
    /// The time of the last write.
    pub updated_at: SystemTime,
    /// The time at which it expires, if it does.
    pub expires_at: Option<SystemTime>,
}

impl SessionInfo {
    /// Creates an entry of a list.
    pub fn new(key: SessionKey, version: u64, updated_at: SystemTime) -> Self {
        Self {
            key,
            version,
            updated_at,
            expires_at: None,
        }
    }

    /// Sets when the session expires.
    #[must_use]
    pub fn expires_at(mut self, at: Option<SystemTime>) -> Self {
        self.expires_at = at;
        self
    }
}
