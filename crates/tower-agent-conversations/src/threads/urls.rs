//! The URLs that a client may put into a message. A provider fetches them, with the server's key or
//! from the server's network.

use std::fmt;
use std::sync::Arc;

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
            UrlRule::Public => is_public(url),
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

/// Domains at which a provider may read files with the key or the account of the server.
const ACCOUNT_DOMAINS: [&str; 5] = [
    "anthropic.com",
    "googleapis.com",
    "openai.azure.com",
    "openai.com",
    "storage.cloud.google.com",
];

/// Domains that mean another host in each network.
const LOCAL_DOMAINS: [&str; 5] = ["home.arpa", "internal", "lan", "local", "localhost"];

/// Returns whether a URL is `https`, and its host is a name on the internet at which no provider
/// keeps files.
///
/// The form is stricter than that of browsers: a URL that two parsers read in two ways is refused.
fn is_public(url: &str) -> bool {
    let Some((scheme, address)) = url.split_once("://") else {
        return false;
    };
    // Parsers drop or replace these before they look at the host.
    let is_ambiguous = |char: char| char.is_whitespace() || char.is_control() || char == '\\';
    if !scheme.eq_ignore_ascii_case("https") || address.contains(is_ambiguous) {
        return false;
    }
    let authority = address.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port),
        None => (authority, ""),
    };
    is_public_host(host) && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_public_host(host: &str) -> bool {
    // The dot of the root is part of no other name.
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let Some((_, top)) = host.rsplit_once('.') else {
        return false;
    };
    // No top domain begins with a digit, but addresses in every notation of IPv4 end in such a
    // label.
    let is_name = host.split('.').all(is_label) && !top.starts_with(|char: char| char.is_numeric());
    let is_below = |domain: &str| {
        host.strip_suffix(domain)
            .is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('.'))
    };
    is_name
        && !ACCOUNT_DOMAINS
            .iter()
            .chain(&LOCAL_DOMAINS)
            .any(|domain| is_below(domain))
}
