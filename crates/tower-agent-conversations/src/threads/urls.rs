//! The URLs that a client may put into a message. A provider fetches them, with the server's key or
//! from the server's network.

use std::fmt;
use std::sync::Arc;

use tower_agent::serve::is_public_url;

use crate::key::ConversationKey;

/// The server's rule about URLs.
#[derive(Clone, Default)]
pub(crate) enum UrlRule {
    /// The URLs that a stranger could read as well.
    #[default]
    Public,
    /// The URLs for which the application's function returns `true`.
    Chosen(Arc<AcceptUrl>),
}

/// Returns whether the client of a thread may send a URL.
type AcceptUrl = dyn Fn(&ConversationKey, &str) -> bool + Send + Sync;

/// The rule about URLs, for the client of this thread.
#[derive(Clone, Copy)]
pub(crate) struct Urls<'a> {
    pub(crate) rule: &'a UrlRule,
    pub(crate) key: &'a ConversationKey,
}

impl Urls<'_> {
    /// Returns whether the client may send this URL.
    pub(crate) fn accept(self, url: &str) -> bool {
        match self.rule {
            UrlRule::Public => is_public_url(url),
            UrlRule::Chosen(accept) => accept(self.key, url),
        }
    }
}

impl fmt::Debug for UrlRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "Public",
            Self::Chosen(_) => "Chosen",
        })
    }
}
