use std::borrow::Cow;

/// Returns a base URL with the API's version, such as `/v1`, unless it has a path: that of a
/// gateway may have no version.
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
pub(crate) fn with_version<'a>(url: &'a str, version: &str) -> Cow<'a, str> {
    let (address, query) = parts(url);
    match path(address) {
        Some("") => format!("{address}{version}{query}").into(),
        _ => url.into(),
    }
}

/// Returns a base URL with the API's version, unless its path ends with one.
#[cfg(feature = "anthropic")]
pub(crate) fn with_version_always<'a>(url: &'a str, version: &str) -> Cow<'a, str> {
    let (address, query) = parts(url);
    match path(address) {
        Some(path) if !path.rsplit('/').next().is_some_and(is_version) => {
            format!("{address}{version}{query}").into()
        }
        _ => url.into(),
    }
}

/// Returns a URL without the query and the `/` before it, and the query.
fn parts(url: &str) -> (&str, &str) {
    let url = url.trim();
    let (address, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    (address.trim_end_matches('/'), query)
}

/// Returns the path of an address, or `None` if it is no URL.
fn path(address: &str) -> Option<&str> {
    let (_, address) = address
        .split_once("://")
        .filter(|(_, address)| !address.is_empty())?;
    let start = address.find('/').unwrap_or(address.len());
    Some(&address[start..])
}

#[cfg(feature = "anthropic")]
fn is_version(segment: &str) -> bool {
    let digits = segment.strip_prefix('v').unwrap_or_default();
    digits.starts_with(|first: char| first.is_ascii_digit())
}
