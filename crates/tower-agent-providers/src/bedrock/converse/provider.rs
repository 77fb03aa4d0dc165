use serde_json::{Map, Value};

use crate::protocol::{CallIdFormat, provider_fields};
use tower_agent::error::{Error, ErrorKind};
use tower_agent::message::ProviderData;

/// The key of this provider's data.
pub(super) const PROVIDER: &str = "bedrock";

/// Identifies the format in which messages and tools are cached.
pub(super) const PROTOCOL: &str = "tower_agent_providers.bedrock.converse";

/// The ids of calls.
pub(super) const CALL_IDS: CallIdFormat = CallIdFormat {
    provider: PROVIDER,
    field: "toolUseId",
    max: 64,
};

/// Returns the fields added by this provider.
pub(super) fn added(data: &ProviderData) -> Option<&Map<String, Value>> {
    provider_fields(data, PROVIDER)
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
