use serde::Deserialize;
use serde_json::Value;

use crate::protocol::Fault;

/// Reads a JSON object; `what` names it in an error.
///
/// Anything else is an error that quotes it. Some servers send an error as an array, which becomes
/// the error that it reports.
///
/// # Errors
///
/// Fails if it is not the JSON object of a `T`.
pub fn read<'de, T: Deserialize<'de>>(json: &'de [u8], what: &str) -> Result<T, Fault> {
    // Text that is checked as a whole need not be checked string by string.
    let parsed = match std::str::from_utf8(json) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(json),
    };
    let found = match parsed {
        // serde would accept an array of the fields in order, and read an error as an answer.
        Ok(object) if json.trim_ascii_start().starts_with(b"{") => return Ok(object),
        Ok(_) => "not an object".to_owned(),
        Err(error) => error.to_string(),
    };
    let whole: Option<Value> = serde_json::from_slice(json).ok();
    let reported = whole
        .as_ref()
        .filter(|whole| whole.is_array())
        .and_then(Fault::read);
    Err(reported.unwrap_or_else(|| {
        Fault::protocol(format!("{what} is not the expected JSON ({found})")).with_quote(json)
    }))
}
