//! Reads the parts of a stored error that hold a `&'static str`: only a known one can be read back.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::call_site::CallSite;
use super::raised_by::RaisedBy;
use crate::call_kind::CallKind;

#[derive(Deserialize)]
struct StoredCallSite {
    kind: String,
    #[serde(default)]
    name: Option<Arc<str>>,
    #[serde(default)]
    agent: Arc<str>,
}

#[derive(Deserialize)]
struct StoredRaisedBy {
    callback: String,
    hook: String,
}

/// Reads a call; `None` if its kind is defined elsewhere.
pub(super) fn call<'de, D>(deserializer: D) -> Result<Option<CallSite>, D::Error>
where
    D: Deserializer<'de>,
{
    let stored = Option::<StoredCallSite>::deserialize(deserializer)?;
    Ok(stored.and_then(|StoredCallSite { kind, name, agent }| {
        let mut kinds = [CallKind::Agent, CallKind::Model, CallKind::Tool].into_iter();
        let kind = kinds.find(|known| known.to_string() == kind)?;
        Some(CallSite { kind, name, agent })
    }))
}

/// Reads a callback and its hook; `None` if there is no such hook.
pub(super) fn raised_by<'de, D>(deserializer: D) -> Result<Option<RaisedBy>, D::Error>
where
    D: Deserializer<'de>,
{
    let stored = Option::<StoredRaisedBy>::deserialize(deserializer)?;
    Ok(stored.and_then(|StoredRaisedBy { callback, hook }| {
        let mut hooks = ["before", "after", "on_error", "wrap"].into_iter();
        let hook = hooks.find(|known| *known == hook)?;
        let callback = callback.into();
        Some(RaisedBy { callback, hook })
    }))
}
