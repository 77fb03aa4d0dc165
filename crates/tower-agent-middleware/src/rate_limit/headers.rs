use std::str::FromStr;
use std::time::{Duration, SystemTime};

use tower_agent::message::Metadata;

/// The report of a provider about its own limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Report {
    pub(super) requests: Reported,
    pub(super) tokens: Reported,
}

/// The report about one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reported {
    pub(super) limit: Option<u64>,
    pub(super) remaining: Option<u64>,
    /// The time after which nothing is used any more.
    pub(super) reset: Option<Duration>,
}

impl Report {
    /// Reads the headers of a response. Those that are not understood are left out.
    pub(super) fn read(metadata: &Metadata) -> Self {
        let mut report = Self::default();
        let mut input_tokens = Reported::default();
        for (name, value) in &metadata.rate_limits {
            let Some((field, resource)) = split(name) else {
                continue;
            };
            let reported = match resource {
                "requests" => &mut report.requests,
                "tokens" => &mut report.tokens,
                "input-tokens" => &mut input_tokens,
                _ => continue,
            };
            match field {
                "limit" => reported.limit = number(value),
                "remaining" => reported.remaining = number(value),
                "reset" => reported.reset = reset(value),
                _ => {}
            }
        }
        // The limit of all tokens is the one in effect, where there are several.
        if report.tokens == Reported::default() {
            report.tokens = input_tokens;
        }
        report
    }
}

/// Returns the field and the resource in the name of a header, in either order.
fn split(name: &str) -> Option<(&str, &str)> {
    if let Some(name) = name.strip_prefix("anthropic-ratelimit-") {
        let (resource, field) = name.rsplit_once('-')?;
        return Some((field, resource));
    }
    name.strip_prefix("x-ratelimit-")?.split_once('-')
}

fn number(value: &str) -> Option<u64> {
    value.trim().parse().ok()
}

/// Reads a time: in seconds, as a duration such as `6m0s`, or as a date by RFC 3339.
fn reset(value: &str) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    if let Some(duration) = duration(value) {
        return Some(duration);
    }
    let date = date(value)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let wait = date - now.unwrap_or_default().as_secs_f64();
    // A date that has passed is a wait of zero.
    Duration::try_from_secs_f64(wait.max(0.0)).ok()
}

/// Reads a duration in the notation of Go.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut duration = Duration::ZERO;
    loop {
        let (number, units) = rest.split_at(rest.find(char::is_alphabetic)?);
        let end = units.find(|char: char| !char.is_alphabetic());
        let (unit, next) = units.split_at(end.unwrap_or(units.len()));
        let seconds = match unit {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds);
        duration = duration.checked_add(part.ok()?)?;
        if next.is_empty() {
            return Some(duration);
        }
        rest = next;
    }
}

/// Reads a date by RFC 3339, as the seconds since 1970.
fn date(text: &str) -> Option<f64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers::<u16, 3>(date, '-')?;
    let (time, offset) = time.split_at(time.find(['Z', 'z', '+', '-'])?);
    let [hour, minute, second] = numbers::<f64, 3>(time, ':')?;
    let east = match offset.split_at(1) {
        ("+", offset) => minutes(offset)?,
        ("-", offset) => -minutes(offset)?,
        _ => 0.0,
    };
    let is_day = (1..=12).contains(&month) && (1..=31).contains(&day);
    let since_midnight = (hour * 60.0 + minute - east) * 60.0 + second;
    is_day.then(|| days(year, month, day) * 86_400.0 + since_midnight)
}

/// Reads hours and minutes.
fn minutes(text: &str) -> Option<f64> {
    let [hours, minutes] = numbers::<f64, 2>(text, ':')?;
    Some(hours * 60.0 + minutes)
}

fn numbers<T: FromStr, const N: usize>(text: &str, separator: char) -> Option<[T; N]> {
    let numbers = text.split(separator).map(|number| number.parse().ok());
    numbers.collect::<Option<Vec<T>>>()?.try_into().ok()
}

/// Returns the number of days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: u16, month: u16, day: u16) -> f64 {
    let is_next_year = month < 3;
    // Years that begin with March: the leap day is then the last of its year.
    let year = i32::from(year) - i32::from(is_next_year);
    let month = i32::from(if is_next_year { month + 9 } else { month - 3 });
    // Five months from March on always have 153 days.
    let day_of_year = (153 * month + 2) / 5 + i32::from(day) - 1;
    let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year;
    // 1970-01-01 is this number of days after 0000-03-01.
    f64::from(days - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_every_spelling_are_read() {
        for (text, millis) in [
            ("6m0s", 360_000),
            ("2m59.56s", 179_560),
            ("20ms", 20),
            ("1h2m", 3_720_000),
            ("12", 12_000),
            ("0.5", 500),
            ("1h0m0.25s", 3_600_250),
        ] {
            assert_eq!(reset(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(reset("2001-01-01T00:00:00Z"), Some(Duration::ZERO));
        for text in ["", "soon", "-3", "-1s", "1m2", "3 fortnights"] {
            assert_eq!(reset(text), None, "{text}");
        }
    }

    #[test]
    fn dates_of_every_spelling_are_read() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", 0.0),
            ("1999-12-31T23:59:59Z", 946_684_799.0),
            ("2000-02-29T12:00:00Z", 951_825_600.0),
            ("2024-03-01t00:00:00.250z", 1_709_251_200.25),
            ("2026-11-28 08:30:00+02:00", 1_795_847_400.0),
            ("2026-11-28T01:00:00-05:30", 1_795_847_400.0),
        ] {
            assert_eq!(date(text), Some(seconds), "{text}");
        }
        for text in [
            "2026-11-28",
            "2026-11-28T08:30:00",
            "2026-11-28T08:30Z",
            "2026-13-01T08:30:00Z",
            "99999-01-01T00:00:00Z",
            "Sat, 28 Nov 2026 08:30:00 GMT",
        ] {
            assert_eq!(date(text), None, "{text}");
        }
    }
}
