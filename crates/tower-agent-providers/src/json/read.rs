use serde::Deserialize;
#[cfg(feature = "openai")]
use serde::de::DeserializeSeed;
use serde_json::Value;

#[cfg(feature = "openai")]
use super::fields::{Fields, Fill};
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
    match parsed {
        // serde would accept an array of the fields in order, and read an error as an answer.
        Ok(object) if is_object(json) => Ok(object),
        Ok(_) => Err(unexpected(json, what, "not an object")),
        Err(error) => Err(unexpected(json, what, &error.to_string())),
    }
}

/// Reads a JSON object, as [`read`] does, into a value that is already there.
#[cfg(feature = "openai")]
pub(crate) fn read_into<'de, T: Fields<'de>>(
    json: &'de [u8],
    what: &str,
    value: &mut T,
) -> Result<(), Fault> {
    if !is_object(json) {
        return Err(unexpected(json, what, "not an object"));
    }
    let filled = match std::str::from_utf8(json) {
        Ok(text) => fill(serde_json::Deserializer::from_str(text), value),
        Err(_) => fill(serde_json::Deserializer::from_slice(json), value),
    };
    filled.map_err(|error| unexpected(json, what, &error.to_string()))
}

#[cfg(feature = "openai")]
fn fill<'de, T: Fields<'de>>(
    mut reader: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
    value: &mut T,
) -> serde_json::Result<()> {
    Fill(value).deserialize(&mut reader)?;
    reader.end()
}

fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().starts_with(b"{")
}

/// Returns the error of a text that is not the object that is expected.
#[cold]
fn unexpected(json: &[u8], what: &str, found: &str) -> Fault {
    let whole: Option<Value> = serde_json::from_slice(json).ok();
    let reported = whole
        .as_ref()
        .filter(|whole| whole.is_array())
        .and_then(Fault::read);
    reported.unwrap_or_else(|| {
        Fault::protocol(format!("{what} is not the expected JSON ({found})")).with_quote(json)
    })
}
