//! Times as they are stored: milliseconds since 1970.

use std::time::{Duration, SystemTime};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

/// Returns the time as it is read back.
pub(super) fn rounded(at: SystemTime) -> SystemTime {
    let since = Duration::from_millis(since_1970(at));
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(at)
}

fn since_1970(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn serialize<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(since_1970(*at))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SystemTime, D::Error> {
    let since = Duration::from_millis(u64::deserialize(deserializer)?);
    let at = SystemTime::UNIX_EPOCH.checked_add(since);
    at.ok_or_else(|| D::Error::custom("the time is out of range"))
}
