//! Hides secrets in texts.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Values that must not be printed, even if a server repeats them.
#[derive(Clone)]
pub(crate) struct Secrets(Vec<Vec<u8>>);

/// Shorter values (`x`, `-`) are not secrets, and hiding them would garble messages.
const SHORTEST: usize = 4;

/// The minimum length for a value whose name does not mark it as a secret.
const SHORTEST_UNNAMED: usize = 8;

const HIDDEN: &str = "[hidden]";

impl Secrets {
    /// Collects the key, and the values of the caller's headers and of the query, except those
    /// whose name marks them as harmless.
    pub(crate) fn new(key: Option<String>, headers: &HeaderMap, query: &str) -> Self {
        let mut secrets: Vec<Vec<u8>> = key.into_iter().map(String::into_bytes).collect();
        secrets.extend(headers.iter().flat_map(of_header));
        for pair in query.split('&') {
            // A query without names is a value, as in `?key`.
            let (name, value) = pair.split_once('=').unwrap_or(("", pair));
            let name = decoded(name);
            let value = decoded(value);
            if let Some(shortest) = shortest_secret(&String::from_utf8_lossy(&name))
                && value.len() >= shortest
            {
                secrets.push(value);
            }
        }
        let mut secrets = Self(secrets);
        secrets.order();
        secrets
    }

    /// Adds the values of headers, except those whose name marks them as harmless.
    pub(crate) fn add_headers(&mut self, headers: &HeaderMap) {
        self.0.extend(headers.iter().flat_map(of_header));
        self.order();
    }

    fn order(&mut self) {
        self.0.retain(|secret| secret.len() >= SHORTEST);
        // Longest first: one secret may be part of another.
        self.0
            .sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.0.dedup();
    }

    /// Adds a key.
    pub(crate) fn add_key(&mut self, key: &str) {
        self.0.push(key.as_bytes().to_vec());
        self.order();
    }

    /// Adds a secret, and its token if it begins with a scheme, as in `Bearer ..`.
    #[cfg(feature = "testing")]
    pub(crate) fn add(&mut self, value: &str) {
        let token = value.split_once(' ').map(|(_, token)| token);
        for secret in [value].into_iter().chain(token) {
            let secret = secret.trim();
            if secret.len() >= SHORTEST_UNNAMED {
                self.0.push(secret.as_bytes().to_vec());
            }
        }
        self.order();
    }

    /// Returns the text with every secret hidden, however its characters are escaped.
    ///
    /// Cut a text only after this call: a part of a secret is not found.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut copied = 0;
        let mut at = 0;
        // No spelling of a secret is shorter than the secret.
        let shortest = self.0.last().map_or(usize::MAX, Vec::len);
        while text.len() - at >= shortest {
            let following = &text.as_bytes()[at..];
            // A secret consists of whole characters; a match that does not would cut one in two.
            match self
                .0
                .iter()
                .find_map(|secret| begins_with(following, secret))
            {
                Some(length)
                    if [at, at + length]
                        .iter()
                        .all(|at| text.is_char_boundary(*at)) =>
                {
                    shown.push_str(&text[copied..at]);
                    shown.push_str(HIDDEN);
                    at += length;
                    copied = at;
                }
                _ => at += 1,
            }
        }
        shown.push_str(&text[copied..]);
        shown
    }
}

/// Returns the secrets in a header.
fn of_header((name, value): (&HeaderName, &HeaderValue)) -> Vec<Vec<u8>> {
    let Some(shortest) = shortest_secret(name.as_str()) else {
        return Vec::new();
    };
    let value = value.as_bytes();
    // A server may repeat a part of the value alone: one cookie of several, or the token without
    // its scheme.
    let words = value
        .split(|byte| b" ;,=\"".contains(byte))
        .filter(|word| word.len() >= SHORTEST_UNNAMED);
    let token = value.splitn(2, |byte| *byte == b' ').nth(1);
    let parts = words.chain(token).chain([value]).map(<[u8]>::trim_ascii);
    parts
        .filter(|part| part.len() >= shortest)
        .map(<[u8]>::to_vec)
        .collect()
}

/// Returns how much of `text` spells the secret, in either case, with each byte plain or escaped:
/// percent-encoded, also twice, with a backslash, by number as in JSON, or as in HTML.
fn begins_with(text: &[u8], secret: &[u8]) -> Option<usize> {
    let mut at = 0;
    for byte in secret {
        let (spelled, length) = spelling(text.get(at..)?, *byte)?;
        if !spelled.eq_ignore_ascii_case(byte) {
            return None;
        }
        at += length;
    }
    Some(at)
}

/// Returns the byte that a text begins with, if it may be this one, and the length of its spelling.
fn spelling(text: &[u8], wanted: u8) -> Option<(u8, usize)> {
    match text {
        [first, ..] if first.eq_ignore_ascii_case(&wanted) => Some((*first, 1)),
        [b'%', b'2', b'5', high, low, ..] => Some((hex(*high, *low)?, 5)),
        [b'%', high, low, ..] => Some((hex(*high, *low)?, 3)),
        [b'\\', b'u' | b'U', b'0', b'0', high, low, ..] => Some((hex(*high, *low)?, 6)),
        [b'\\', b'x', high, low, ..] => Some((hex(*high, *low)?, 4)),
        [b'\\', escaped, ..] => Some((*escaped, 2)),
        [b'&', b'#', number @ ..] => {
            let (byte, length) = html_number(number)?;
            Some((byte, length + 2))
        }
        _ => None,
    }
}

/// Returns the byte of an HTML reference after its `&#`, and the length up to its semicolon.
fn html_number(number: &[u8]) -> Option<(u8, usize)> {
    /// No byte needs more, and servers may write leading zeros.
    const LONGEST: usize = 8;
    let end = number.iter().take(LONGEST).position(|byte| *byte == b';')?;
    let digits = std::str::from_utf8(&number[..end]).ok()?;
    let byte = match digits.strip_prefix(['x', 'X']) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    Some((byte.ok()?, end + 1))
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let high = char::from(high).to_digit(16)?;
    let low = char::from(low).to_digit(16)?;
    u8::try_from(high * 16 + low).ok()
}

fn decoded(text: &str) -> Vec<u8> {
    // An escape that is none is kept as it is: a proxy may do the same.
    let mut bytes = Vec::new();
    let mut remaining = text.as_bytes();
    while let [first, after @ ..] = remaining {
        let escaped = match remaining {
            [b'%', high, low, ..] => hex(*high, *low),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(*first));
        remaining = if escaped.is_some() {
            &remaining[3..]
        } else {
            after
        };
    }
    bytes
}

/// Returns the length from which a value of this name is a secret, or `None` if it never is.
fn shortest_secret(name: &str) -> Option<usize> {
    const SECRET: [&str; 13] = [
        "auth", "code", "cookie", "cred", "jwt", "key", "pass", "pwd", "secret", "session", "sig",
        "token", "user-id",
    ];
    const PLAIN: [&str; 12] = [
        "accept",
        "agent",
        "beta",
        "content",
        "model",
        "organization",
        "project",
        "referer",
        "region",
        "request-id",
        "title",
        "version",
    ];
    let name = name.to_ascii_lowercase();
    // Secret words first: `x-project-key` is a secret, though a project is not.
    if SECRET.iter().any(|word| name.contains(word)) {
        Some(SHORTEST)
    } else if PLAIN.iter().any(|word| name.contains(word)) {
        None
    } else {
        Some(SHORTEST_UNNAMED)
    }
}

/// Returns a URL without parts that may contain a key: credentials, query, an invalid port. Returns
/// nothing of a text that is not an HTTP URL.
pub(super) fn without_secrets(url: &str) -> String {
    let Some((scheme, address)) = url.split_once("://").filter(|(scheme, _)| is_word(scheme))
    else {
        return HIDDEN.to_owned();
    };
    // Credentials may contain a `/` or a `?`, at which some parsers end the host and others do not.
    if address.contains('@') {
        return format!("{scheme}://{HIDDEN}");
    }
    let address = address.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = address
        .find('/')
        .map_or((address, ""), |slash| address.split_at(slash));
    // A password can stand in the place of the port, as in `name:password` without an `@`.
    match port(authority) {
        Some(port) if !is_number(port) => {
            let host = &authority[..authority.len() - port.len()];
            format!("{scheme}://{host}{HIDDEN}{path}")
        }
        _ => format!("{scheme}://{authority}{path}"),
    }
}

/// Returns the text at the position of an authority's port.
pub(super) fn port(authority: &str) -> Option<&str> {
    // The colons of an IPv6 address stand in brackets.
    let after = authority.rfind(']').map_or(0, |end| end + 1);
    authority[after..].split_once(':').map(|(_, port)| port)
}

pub(super) fn is_number(port: &str) -> bool {
    port.is_empty() || port.parse::<u16>().is_ok()
}

fn is_word(scheme: &str) -> bool {
    !scheme.is_empty() && scheme.len() <= 8 && scheme.bytes().all(|byte| byte.is_ascii_lowercase())
}
