use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_agent::AgentRequest;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tower_agent_conversations::StoreError;

/// The maximum length of the name of a user, in bytes.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const MAX_NAME: usize = 512;

/// The maximum length of the id of a run or a step, in bytes.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) const MAX_ID: usize = 1024;

/// Identifies a run in a journal: the run id of its request, and the user whom it belongs to.
///
/// It is no [`ConversationKey`](tower_agent_conversations::ConversationKey): a conversation has
/// many runs, and a run may have none, or a name that an engine knows before its conversation does.
/// A run points to its conversation instead.
///
/// The user is part of the key, so that two users may give their runs the same id, and neither sees
/// the other's. Take it from what the server knows, such as a login, and never from what the client
/// says. The run id may come from the client of a user.
///
/// A run in a [session](tower_agent_conversations::ConversationKey) or a thread belongs to its
/// user. The request of any other run takes one from [`request`](Self::request); without, the run
/// is nobody's, and all who know its id share it. A text is the key of such a run.
///
/// ```
/// use tower_agent::AgentRequest;
/// use tower_agent_durable::journal::RunKey;
///
/// let key = RunKey::new("invoice 7").of("ada");
/// let request = key.request("Pay it.");
/// assert_eq!(request.extensions().get::<RunKey>(), Some(&key));
/// assert_ne!(key, RunKey::from("invoice 7"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunKey {
    /// The user; `None` for a run that is nobody's.
    pub user: Option<Arc<str>>,
    /// The run id.
    pub run: Arc<str>,
}

impl RunKey {
    /// Creates the key of a run that is nobody's.
    pub fn new(run: impl Into<Arc<str>>) -> Self {
        Self {
            user: None,
            run: run.into(),
        }
    }

    /// Sets the user. An empty name is nobody.
    #[must_use]
    pub fn of(self, user: impl Into<Arc<str>>) -> Self {
        self.with_user(Some(user.into()))
    }

    /// Sets the user, or nobody. An empty name is nobody.
    #[must_use]
    pub fn with_user(mut self, user: Option<Arc<str>>) -> Self {
        self.user = user.filter(|user| !user.is_empty());
        self
    }

    /// Returns the request as one of this run.
    pub fn request(&self, request: impl Into<AgentRequest>) -> AgentRequest {
        let mut request = request.into().with_run_id(&*self.run);
        if self.user.is_some() {
            request.extensions_mut().insert(self.clone());
            request = request.with_extension(self.clone());
        }
        request
    }

    /// Returns the key as a text that no other key has, for an engine that names its runs by a
    /// text. That of a run that is nobody's is its run id, unless that starts with a brace.
    ///
    /// ```
    /// use tower_agent_durable::journal::RunKey;
    ///
    /// let key = RunKey::new("invoice 7").of("ada");
    /// assert_eq!(key.to_text(), r#"{"user":"ada","run":"invoice 7"}"#);
    /// assert_eq!(RunKey::from_text(&key.to_text()), key);
    ///
    /// // An id that looks like the key of another user's run.
    /// let other = RunKey::new(key.to_text());
    /// assert_eq!(RunKey::from_text(&other.to_text()), other);
    /// ```
    #[must_use]
    pub fn to_text(&self) -> String {
        if self.user.is_none() && !self.run.starts_with('{') {
            return self.run.to_string();
        }
        // Written field by field: the order of a map depends on the features of the whole program.
        let user = serde_json::json!(self.user);
        let run = serde_json::json!(self.run);
        format!(r#"{{"user":{user},"run":{run}}}"#)
    }

    /// Returns the key of a text from [`to_text`](Self::to_text).
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self::new(text))
    }

    /// Fails for a key that a database cannot have.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn check(&self) -> Result<(), StoreError> {
        StoreError::check_id("user of the run", self.owner(), MAX_NAME)?;
        StoreError::check_id("run id", &self.run, MAX_ID)
    }

    /// Returns the user as it is stored.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn owner(&self) -> &str {
        self.user.as_deref().unwrap_or_default()
    }
}

impl fmt::Display for RunKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user}/{}", self.run),
            None => f.write_str(&self.run),
        }
    }
}

impl From<&str> for RunKey {
    fn from(run: &str) -> Self {
        Self::new(run)
    }
}

impl From<&String> for RunKey {
    fn from(run: &String) -> Self {
        Self::new(run.as_str())
    }
}

impl From<&Self> for RunKey {
    fn from(key: &Self) -> Self {
        key.clone()
    }
}
