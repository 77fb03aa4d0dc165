//! Times as the protocol has them.

use std::time::SystemTime;

/// Returns a time in ISO 8601, such as `2026-11-23T08:30:00.250Z`. Times before 1970 are 1970.
pub(super) fn iso_8601(at: SystemTime) -> String {
    let since = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = since.as_secs();
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Returns the year, month and day of the Gregorian calendar, this number of days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Years that begin with March: the leap day is then the last of its year. 400 of them always
    // have 146,097 days, and 1970-01-01 is 719,468 days after 0000-03-01.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Five months from March on always have 153 days.
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let is_next_year = month >= 10;
    let year = 400 * era + year_of_era + u64::from(is_next_year);
    let month = if is_next_year { month - 9 } else { month + 3 };
    (year, month, day)
}
