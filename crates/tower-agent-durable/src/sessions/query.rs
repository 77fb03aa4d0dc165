use std::sync::Arc;
use std::time::SystemTime;

use super::key::SessionKey;
use super::kind::SESSION;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::error::StoreError;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::ids;

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
    /// The application; `None` for all.
    pub app: Option<Arc<str>>,
    /// The user; `None` for all.
    pub user: Option<Arc<str>>,
    /// The [kind](crate::Append::kind); `None` for all.
    pub kind: Option<Arc<str>>,
    /// Only sessions with open interrupts.
    pub is_waiting: bool,
    /// The last session of the page before.
    pub after: Option<SessionInfo>,
    /// The maximum number of sessions.
    pub limit: u32,
}

impl SessionQuery {
    /// Creates a query for the first 100 sessions of all applications and users.
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

    /// Creates a query for the first 100 sessions of an application.
    pub fn of_app(app: impl Into<Arc<str>>) -> Self {
        Self {
            app: Some(app.into()),
            ..Self::new()
        }
    }

    /// Fails for a query that a database cannot be asked.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn check(&self) -> Result<(), StoreError> {
        ids::check(
            "application",
            self.app.as_deref().unwrap_or_default(),
            ids::NAME,
        )?;
        ids::check("user", self.user.as_deref().unwrap_or_default(), ids::NAME)
    }

    /// Sets the user.
    #[must_use]
    pub fn user(mut self, user: impl Into<Arc<str>>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the [kind](crate::Append::kind): `session`, or `thread` for those of a server.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Arc<str>>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Selects the sessions that have open interrupts.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.is_waiting = true;
        self
    }

    /// Continues after this session, the last of the page before.
    #[must_use]
    pub fn after(mut self, last: &SessionInfo) -> Self {
        self.after = Some(last.clone());
        self
    }

    /// Sets the maximum number of sessions. Defaults to 100.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for SessionQuery {
    fn default() -> Self {
        Self::new()
    }
}

/// One session of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The key.
    pub key: SessionKey,
    /// The [kind](crate::Append::kind).
    pub kind: Arc<str>,
    /// The version.
    pub version: u64,
    /// The time of the last write.
    pub updated_at: SystemTime,
    /// The session has open interrupts.
    pub is_waiting: bool,
    /// The time at which it expires, if it does.
    pub expires_at: Option<SystemTime>,
}

impl SessionInfo {
    /// Creates an entry of a list: of kind `session`, without open interrupts.
    #[must_use]
    pub fn new(key: SessionKey, version: u64, updated_at: SystemTime) -> Self {
        Self {
            key,
            kind: SESSION.into(),
            version,
            updated_at,
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

    /// Sets whether the session has open interrupts.
    #[must_use]
    pub fn waiting(mut self, is_waiting: bool) -> Self {
        self.is_waiting = is_waiting;
        self
    }

    /// Sets when the session expires.
    #[must_use]
    pub fn expires_at(mut self, at: Option<SystemTime>) -> Self {
        self.expires_at = at;
        self
    }
}
