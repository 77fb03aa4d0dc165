//! The versions of what is kept: a later one than this crate knows is not read.

#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
use serde::de::DeserializeOwned;
use serde::de::{Deserialize, Deserializer, Error};

use crate::error::StoreError;

/// Reads data with a version from JSON.
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
pub(super) fn read<T: DeserializeOwned>(text: &str, newest: u32) -> Result<T, StoreError> {
    #[derive(serde::Deserialize)]
    struct Head {
        version: u32,
    }
    let Head { version: found } = serde_json::from_str(text).map_err(StoreError::data)?;
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
    match found > NEWEST {
        true => Err(D::Error::custom(StoreError::NewerFormat {
            found,
            newest: NEWEST,
        })),
        false => Ok(found),
    }
}
