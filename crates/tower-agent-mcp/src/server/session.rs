//! Ids of sessions that belong to a principal.
//!
//! A client is given the id with a proof for its principal, and the service below sees the id
//! alone. So no list of the owners of sessions has to be kept beside that of the sessions.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use rmcp::model::ProtocolVersion;

use super::seal::Seal;

const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Adds the proof for a principal to the id of a new session, if a response has one.
pub(super) fn bind(headers: &mut HeaderMap, seal: &Seal, principal: &str) {
    let Some(id) = headers.remove(&SESSION) else {
        return;
    };
    let bound = id.to_str().ok().and_then(|id| {
        let proof = seal.session_proof(id, principal)?;
        HeaderValue::try_from(format!("{id}.{proof}")).ok()
    });
    // Without a proof nobody could use the session: the client is not told of it.
    if let Some(bound) = bound {
        headers.insert(SESSION, bound);
    }
}

/// Takes the proof off the id of a session, if a request has one. Returns `false` if it is not one
/// for this principal.
pub(super) fn reveal(headers: &mut HeaderMap, seal: &Seal, principal: &str) -> bool {
    let mut given = headers.get_all(&SESSION).iter();
    let Some(bound) = given.next() else {
        return true;
    };
    if given.next().is_some() {
        return false;
    }
    let id = bound.to_str().ok().and_then(|bound| {
        let (id, proof) = bound.rsplit_once('.')?;
        let is_own = seal.proves_session(id, principal, proof);
        is_own.then(|| HeaderValue::try_from(id).ok())?
    });
    let Some(id) = id else {
        return false;
    };
    headers.insert(SESSION, id);
    true
}

/// Returns whether a request names a session.
pub(super) fn is_named(headers: &HeaderMap) -> bool {
    headers.contains_key(&SESSION)
}

/// Returns whether a request can only begin a session: one of a client of an earlier protocol
/// version, without a session.
pub(super) fn begins(method: &Method, headers: &HeaderMap) -> bool {
    // The versions are dates.
    let version = headers
        .get(VERSION)
        .and_then(|version| version.to_str().ok());
    let is_earlier = version.is_none_or(|version| version < ProtocolVersion::V_2026_07_28.as_str());
    method == Method::POST && is_earlier && !is_named(headers)
}
