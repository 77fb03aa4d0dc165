const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Returns whether the `Host` of a request names the machine itself, with this port, or with any if
/// it is `None`.
///
/// To listen on the loopback is not enough for a server that knows nobody's name: with DNS
/// rebinding, the page of another site points its own name there, and its scripts then read the
/// responses. The browser still sends that name as the `Host`. A program is not bound by this: it
/// sends any `Host`, so the server must listen on the loopback as well.
///
/// ```
/// use tower_agent::serve::is_loopback_host;
///
/// assert!(is_loopback_host("localhost:3000", Some(3000)));
/// assert!(is_loopback_host("127.0.0.1:8080", None));
/// assert!(!is_loopback_host("localhost.example.com:3000", None));
/// ```
#[must_use]
pub fn is_loopback_host(host: &str, port: Option<u16>) -> bool {
    let is_name = |name: &str| LOOPBACK.iter().any(|own| own.eq_ignore_ascii_case(name));
    // Browsers omit the port of the scheme.
    if is_name(host) {
        return port.is_none_or(|port| port == 80);
    }
    let Some((name, given)) = host.rsplit_once(':') else {
        return false;
    };
    // The text, and not its number: `+80` and `080` are numbers, too.
    let is_port = match port {
        Some(port) => given == port.to_string(),
        None => !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit()),
    };
    is_name(name) && is_port
}

/// Returns whether an `Origin` is that of the pages which the server at this `Host` sends, over
/// `http` or `https`.
///
/// A page of another origin may post to a server that its visitor can reach. The browser says from
/// where.
///
/// ```
/// use tower_agent::serve::is_own_origin;
///
/// assert!(is_own_origin(b"http://localhost:3000", "http", "localhost:3000"));
/// assert!(!is_own_origin(b"http://example.com", "http", "localhost:3000"));
/// assert!(!is_own_origin(b"null", "http", "localhost:3000"));
/// ```
#[must_use]
pub fn is_own_origin(origin: &[u8], scheme: &str, host: &str) -> bool {
    origin.eq_ignore_ascii_case(format!("{scheme}://{host}").as_bytes())
}
