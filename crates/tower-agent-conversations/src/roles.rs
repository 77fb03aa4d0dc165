use std::collections::HashSet;
use std::sync::Arc;

use tower_agent::error::Answerer;

/// The roles of a sender, as the server has authenticated it. Defaults to none. Cloning is O(1).
///
/// ```
/// use tower_agent::error::Answerer;
/// use tower_agent_conversations::Roles;
///
/// let roles = Roles::new(["support"]);
/// assert!(roles.may_answer(&Answerer::Role("support".into())));
/// assert!(!roles.may_answer(&Answerer::Role("audit".into())));
/// assert!(Roles::default().may_answer(&Answerer::User));
/// ```
///
/// With the [name](Self::named) of the sender, the answers that it gives have the name:
///
/// ```
/// use tower_agent_conversations::Roles;
///
/// let roles = Roles::new(["support"]).named("sam");
/// assert_eq!(roles.name(), Some("sam"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    all: Arc<HashSet<String>>,
    name: Option<Arc<str>>,
}

impl Roles {
    /// Creates the roles of a sender.
    pub fn new(roles: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            all: Arc::new(roles.into_iter().map(Into::into).collect()),
            name: None,
        }
    }

    /// Sets the name of the sender, as the server has authenticated it: that of the principal, if
    /// it is a user as well.
    #[must_use]
    pub fn named(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Returns the name of the sender, if the server knows it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns whether the sender has no role.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns this role of the sender alone, or none if the sender does not have it.
    #[must_use]
    pub fn only(&self, role: &str) -> Self {
        Self {
            name: self.name.clone(),
            ..Self::new(self.all.get(role).cloned())
        }
    }

    /// Returns whether the sender may answer a question in a thread of its own: as the user of the
    /// thread, or by a role.
    #[must_use]
    pub fn may_answer(&self, answerer: &Answerer) -> bool {
        match answerer {
            Answerer::User => true,
            Answerer::Role(role) => self.all.contains(role),
            // A party that is newer than this crate is not the sender.
            _ => false,
        }
    }
}
