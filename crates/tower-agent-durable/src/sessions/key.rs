use std::fmt;
use std::sync::Arc;

use tower_agent::AgentRequest;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::error::StoreError;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use crate::ids;

/// Identifies a session.
///
/// The user is part of the key, so that the session of another user is unknown. Take it from what
/// the server knows, such as a login, and never from what the client says.
///
/// The databases keep a session whose application and user have up to 512 bytes each, and its name
/// up to 1,024, without NUL characters. They refuse any other with
/// [`StoreError::Id`](crate::StoreError::Id).
///
/// ```
/// use tower_agent::AgentRequest;
/// use tower_agent_durable::SessionKey;
///
/// let key = SessionKey::new("shop", "ada", "2026-11-22");
/// let request = key.request("Where is my order?");
/// assert_eq!(request.extensions().get::<SessionKey>(), Some(&key));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct SessionKey {
    /// The application.
    pub app: Arc<str>,
    /// The user, or an empty string without one.
    pub user: Arc<str>,
    /// The session of the user.
    pub session: Arc<str>,
}

impl SessionKey {
    /// Creates a key.
    pub fn new(
        app: impl Into<Arc<str>>,
        user: impl Into<Arc<str>>,
        session: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            app: app.into(),
            user: user.into(),
            session: session.into(),
        }
    }

    /// Fails for a key that a database cannot have.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        ids::check("application of the session", &self.app, ids::NAME)?;
        ids::check("user of the session", &self.user, ids::NAME)?;
        ids::check("id of the session", &self.session, ids::ID)
    }

    /// Returns the request for this session.
    #[must_use]
    pub fn request(&self, request: impl Into<AgentRequest>) -> AgentRequest {
        let mut request = request.into();
        request.extensions_mut().insert(self.clone());
        request
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.app, self.user, self.session)
    }
}
