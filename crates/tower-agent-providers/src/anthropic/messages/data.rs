use std::borrow::Cow;
use std::fmt::Display;

use serde_json::{Map, Value};

use super::provider::{PROVIDER, added};
use tower_agent::error::{Error, ErrorKind};
use tower_agent::message::ProviderData;

/// Returns the breakpoint of the prompt cache in provider data.
pub(super) fn breakpoint(data: &ProviderData) -> Option<&Value> {
    added(data)?
        .get("cache_control")
        .filter(|breakpoint| !breakpoint.is_null())
}

/// Returns the fields of a block with a breakpoint.
pub(super) fn with_breakpoint<'a>(
    fields: Option<&'a Map<String, Value>>,
    breakpoint: Option<&Value>,
) -> Option<Cow<'a, Map<String, Value>>> {
    let Some(breakpoint) = breakpoint else {
        return fields.map(Cow::Borrowed);
    };
    let mut fields = fields.cloned().unwrap_or_default();
    fields.insert("cache_control".into(), breakpoint.clone());
    Some(Cow::Owned(fields))
}

/// Returns provider data that consists of these fields.
pub(super) fn data(fields: Map<String, Value>) -> ProviderData {
    let mut data = ProviderData::default();
    data.set(PROVIDER, Value::Object(fields));
    data
}

/// Returns an error for a request that the protocol cannot represent: nothing is dropped silently.
pub(super) fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidRequest, message.into())
}

/// Returns an error that says where the problem is.
pub(super) fn at(path: &dyn Display, error: Error) -> Error {
    let message = format!("{path}: {}", error.message());
    error.with_message(message)
}
