use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_agent::context::ConversationId;
use tower_agent::{AgentRequest, RunContext};

use crate::bounds;
use crate::error::StoreError;

/// Identifies a conversation.
///
/// The user is part of the key, so that the conversation of another user is unknown. Take it from
/// what the server knows, such as a login, and never from what the client says.
///
/// A key is an [extension](AgentRequest::with_extension) of each run of its conversation, whoever
/// resumes it, so that tools, layers and budgets know whose run it is.
///
/// The databases keep a conversation whose application and user have up to 512 bytes each, and its
/// id up to 1,024, without NUL characters. They refuse any other with
/// [`StoreError::Id`](crate::StoreError::Id).
///
/// ```
/// use tower_agent::Request;
/// use tower_agent_conversations::ConversationKey;
///
/// let key = ConversationKey::new("shop", "ada", "2026-11-22");
/// let request = key.request("Where is my order?");
/// assert_eq!(ConversationKey::of(request.context()), Some(&key));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConversationKey {
    /// The application. Applications and servers that share a store need different ones.
    pub app: Arc<str>,
    /// The user, or an empty string without one: then whoever knows the id has the conversation.
    pub user: Arc<str>,
    /// The conversation of the user.
    pub id: Arc<str>,
}

impl ConversationKey {
    /// Creates a key.
    pub fn new(
        app: impl Into<Arc<str>>,
        user: impl Into<Arc<str>>,
        id: impl Into<Arc<str>>,
    ) -> Self {
        Self {
            app: app.into(),
            user: user.into(),
            id: id.into(),
        }
    }

    /// Returns the request for this conversation, whose [`ConversationId`] it has as well.
    pub fn request(&self, request: impl Into<AgentRequest>) -> AgentRequest {
        request
            .into()
            .with_extension(ConversationId::new(self.id.clone()))
            .with_extension(self.clone())
    }

    /// Returns the key of the conversation that a run belongs to, if it has one.
    #[must_use]
    pub fn of(context: &RunContext) -> Option<&Self> {
        context.extensions().get()
    }

    /// Fails for a key that a database cannot have, for a store of your own.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Id`](crate::StoreError::Id).
    pub fn check(&self) -> Result<(), StoreError> {
        StoreError::check_id("application of the conversation", &self.app, bounds::NAME)?;
        StoreError::check_id("user of the conversation", &self.user, bounds::NAME)?;
        StoreError::check_id("id of the conversation", &self.id, bounds::ID)
    }
}

impl fmt::Display for ConversationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.app, self.user, self.id)
    }
}
