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

/// Returns whether a client may name a URL, for an image, audio or a document: it is `https`, and
/// its host is a name on the internet at which no provider keeps files.
///
/// A provider fetches it, with the key of the server's account, or from the server's own network if
/// the model runs there. So a URL must lead nowhere that a stranger could not read as well. The
/// form is stricter than that of browsers: a URL that two parsers read in two ways is refused, and
/// so is every address.
///
/// ```
/// use tower_agent::serve::is_public_url;
///
/// assert!(is_public_url("https://images.example.com/cat.png"));
/// assert!(!is_public_url("http://169.254.169.254/latest/meta-data/"));
/// assert!(!is_public_url("https://api.openai.com/v1/files/file-1"));
/// ```
#[must_use]
pub fn is_public_url(url: &str) -> bool {
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
