//! Versions of stored data: data of a later version than this crate knows is refused.

use serde::de::DeserializeOwned;
use serde::de::{Deserialize, Deserializer, Error};

use tower_agent_conversations::StoreError;

/// Reads data with a version from JSON.
pub(super) fn read<T: DeserializeOwned>(text: &str, newest: u32) -> Result<T, StoreError> {
    #[derive(serde::Deserialize)]
    struct VersionHead {
        version: u32,
    }
    // The version alone first: the fields of a later version may not be readable at all, and the
    // error must then say that, and not name a field.
    let VersionHead { version: found } = serde_json::from_str(text).map_err(StoreError::data)?;
    if found > newest {
        return Err(StoreError::NewerFormat { found, newest });
    }
    serde_json::from_str(text).map_err(StoreError::data)
}

/// Deserialises a version.
pub(super) fn known<'de, const NEWEST: u32, D>(deserializer: D) -> Result<u32, D::Error>
where
    D: Deserializer<'de>,
{
    let found = u32::deserialize(deserializer)?;
    if found > NEWEST {
        let newest = NEWEST;
        return Err(D::Error::custom(StoreError::NewerFormat { found, newest }));
    }
    Ok(found)
}
