use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};

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
    pub(super) fn read<'a>(headers: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut report = Self::default();
        let mut input_tokens = Reported::default();
        for (name, value) in headers {
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
    if let Ok(duration) = value.parse::<SignedDuration>() {
        return Duration::try_from(duration).ok();
    }
    let date = SystemTime::from(value.parse::<Timestamp>().ok()?);
    // A date that has passed is a wait of zero.
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
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
        ] {
            assert_eq!(reset(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(reset("2001-01-01T00:00:00Z"), Some(Duration::ZERO));
        for text in ["", "soon", "-3", "-1s"] {
            assert_eq!(reset(text), None, "{text}");
        }
    }
}
