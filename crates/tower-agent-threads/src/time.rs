use std::time::SystemTime;

/// Returns the time, in seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_secs())
}
