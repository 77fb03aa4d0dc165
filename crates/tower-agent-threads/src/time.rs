use std::time::{Duration, SystemTime};

/// Returns the time, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    millis(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
}

/// Returns the time, in microseconds since 1970.
pub(crate) fn micros() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Returns a duration in milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time that is given in milliseconds since 1970.
pub(crate) fn time(millis: u64) -> SystemTime {
    let since = Duration::from_millis(millis);
    // Out of the clock's range only in a thread that was stored by something else.
    SystemTime::UNIX_EPOCH
        .checked_add(since)
        .unwrap_or(SystemTime::UNIX_EPOCH)
}
