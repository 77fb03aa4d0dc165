use std::fmt;
use std::sync::Arc;

/// The id of the conversation that a run belongs to, for telemetry: typed data of the run. Servers
/// with threads add it; in your own program, add it with
/// [`with_extension`](crate::AgentRequest::with_extension).
///
/// ```
/// use tower_agent::context::ConversationId;
/// use tower_agent::{AgentRequest, Request};
///
/// let request = AgentRequest::new("Hello.").with_extension(ConversationId::new("chat 7"));
/// let id = request.context().extension::<ConversationId>()?;
/// assert_eq!(id.as_str(), "chat 7");
/// # Ok::<_, tower_agent::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConversationId(Arc<str>);

impl ConversationId {
    /// Creates an id.
    #[must_use]
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
