use std::net::Ipv6Addr;

/// Returns the URL that a value of `OLLAMA_HOST` stands for: `host`, `host:port`, `:port` or a URL.
///
/// The variable also tells a server where to listen. An address that means every interface becomes
/// that of this machine. The paths of the server's protocols are left out.
pub(super) fn url(host: &str) -> String {
    let host = host.trim();
    let (scheme, address, default_port) = match host.split_once("://") {
        None if host == "ollama.com" => ("https", host, "443"),
        None => ("http", host, "11434"),
        Some(("http", address)) => ("http", address, "80"),
        Some(("https", address)) => ("https", address, "443"),
        Some((other, address)) => (other, address, "11434"),
    };
    let (authority, path) = address.split_once('/').unwrap_or((address, ""));
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if is_whole(name) => (name, Some(port)),
        // The last colon is one of an IPv6 address without brackets.
        _ => (authority, None),
    };
    let port = port
        .filter(|port| port.parse::<u16>().is_ok())
        .unwrap_or(default_port);
    let name = match name.trim_matches(['[', ']']) {
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "[::1]".to_owned(),
        name if name.parse::<Ipv6Addr>().is_ok() => format!("[{name}]"),
        _ => name.to_owned(),
    };
    let path = path.trim_end_matches('/');
    let path = match path {
        "v1" | "api" => "",
        path => path,
    };
    format!("{scheme}://{name}:{port}/{path}")
}

/// Returns whether the text before a port is a host: a name, IPv4, or IPv6 in brackets.
fn is_whole(name: &str) -> bool {
    !name.contains(':') || name.starts_with('[') && name.ends_with(']')
}
