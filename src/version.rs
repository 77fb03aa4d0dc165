use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

/// The version of a stored form: `NEWEST` is written, and a later one is not read. It increases
/// when an older version of this crate would misread what is written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Version<const NEWEST: u32>;

impl<const NEWEST: u32> Serialize for Version<NEWEST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(NEWEST)
    }
}

impl<'de, const NEWEST: u32> Deserialize<'de> for Version<NEWEST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = u32::deserialize(deserializer)?;
        if found > NEWEST {
            return Err(D::Error::custom(format!(
                "the data has format {found}, but this version of tower-agent reads up to {NEWEST}; \
                 update it"
            )));
        }
        Ok(Self)
    }
}
