//! Access to the console.

use std::sync::Arc;

use http::header::{FORWARDED, HOST, HeaderName, ORIGIN, VIA};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use tower_agent::serve::{is_loopback_host, is_own_origin};

use super::reply::Refusal;
use crate::operator::Operator;

/// The headers that a proxy adds.
const FORWARDING: [HeaderName; 5] = [
    FORWARDED,
    VIA,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-real-ip"),
];

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Returns the sender of a request.
type OperatorOf = Arc<dyn Fn(&Parts) -> Option<Operator> + Send + Sync>;

/// The callers that may ask.
#[derive(Clone)]
pub(crate) enum Access {
    /// Whom the application knows.
    By(OperatorOf),
    /// Everybody on this machine.
    Local(Operator),
}

impl Access {
    /// Returns the sender of a request, if it may ask.
    pub(super) fn operator(&self, parts: &Parts) -> Result<Operator, Refusal> {
        match self {
            Self::By(operator_of) => {
                from_own_page(parts)?;
                operator_of(parts).ok_or_else(|| {
                    let why = "the sender of this request is no operator of the console";
                    Refusal::new(StatusCode::FORBIDDEN, "forbidden", why)
                })
            }
            Self::Local(developer) => {
                is_local(parts)?;
                from_own_page(parts)?;
                Ok(developer.clone())
            }
        }
    }
}

fn forbidden(why: &str) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, "forbidden", why)
}

/// Refuses what was not sent to the loopback of this machine.
fn is_local(parts: &Parts) -> Result<(), Refusal> {
    let is_forwarded = |name| parts.headers.contains_key(name);
    if FORWARDING.iter().any(is_forwarded) {
        return Err(forbidden(
            "this console is for one machine, and the request has passed a proxy: use `into_service`",
        ));
    }
    // HTTP/2 has an authority instead, and HTTP/1.1 may have both.
    let target = parts.uri.authority().map(|authority| authority.as_str());
    let host = the_only(&parts.headers, &HOST)?;
    let mut names = target.into_iter().chain(host).peekable();
    if names.peek().is_none() || !names.all(|name| is_loopback_host(name, None)) {
        return Err(forbidden(
            "this console is for one machine, and answers to `localhost` alone",
        ));
    }
    Ok(())
}

/// Refuses what a browser sends from the page of another site: its cookies come along. What a link
/// leads to is shown, since it changes nothing, and the other page cannot read it.
fn from_own_page(parts: &Parts) -> Result<(), Refusal> {
    let headers = &parts.headers;
    let elsewhere = || forbidden("only the console's own page may ask");
    let mode = the_only(headers, &FETCH_MODE)?;
    let is_link = parts.method == Method::GET && mode == Some("navigate");
    match the_only(headers, &FETCH_SITE)? {
        // A browser says it of itself, whatever a proxy has made of the host.
        Some("same-origin" | "none") => return Ok(()),
        Some(_) if is_link => return Ok(()),
        Some(_) => return Err(elsewhere()),
        None => {}
    }
    let Some(origin) = the_only(headers, &ORIGIN)? else {
        return Ok(());
    };
    let target = parts.uri.authority().map(|authority| authority.as_str());
    let host = the_only(headers, &HOST)?.or(target).unwrap_or_default();
    let is_own = |scheme| is_own_origin(origin.as_bytes(), scheme, host);
    if is_own("http") || is_own("https") {
        Ok(())
    } else {
        Err(elsewhere())
    }
}

/// Returns the value of a header that must not occur twice.
fn the_only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else {
        return Ok(None);
    };
    match (first.to_str(), values.next()) {
        (Ok(value), None) => Ok(Some(value)),
        _ => Err(forbidden("a header of the request cannot be relied on")),
    }
}
