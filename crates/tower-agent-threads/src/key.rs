use std::sync::Arc;

/// Identifies a thread. The principal is part of the key, so that the thread of another principal
/// is unknown.
///
/// ```
/// use tower_agent_threads::ThreadKey;
///
/// let key = ThreadKey::new("shop", "thread 1").with_principal(Some("ada".into()));
/// assert_ne!(key, ThreadKey::new("shop", "thread 1"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ThreadKey {
    /// The server's name. Servers of different agents that share a store or a key need different
    /// ones.
    pub server: Arc<str>,
    /// The owner; `None` without one.
    pub principal: Option<Arc<str>>,
    /// The client's id of the thread.
    pub thread: Arc<str>,
}

impl ThreadKey {
    /// Creates the key of a thread without an owner.
    pub fn new(server: impl Into<Arc<str>>, thread: impl Into<Arc<str>>) -> Self {
        Self {
            server: server.into(),
            principal: None,
            thread: thread.into(),
        }
    }

    /// Sets the owner, as the server has authenticated it. Defaults to none: then whoever knows the
    /// id of the thread can continue it.
    #[must_use]
    pub fn with_principal(mut self, principal: Option<Arc<str>>) -> Self {
        self.principal = principal;
        self
    }
}
