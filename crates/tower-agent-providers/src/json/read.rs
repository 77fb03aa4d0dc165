use serde::Deserialize;
#[cfg(any(feature = "gemini", feature = "openai"))]
use serde::de::DeserializeSeed;
use serde_json::Value;

#[cfg(any(feature = "gemini", feature = "openai"))]
use super::fields::{Fill, ReadFields};
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
    match std::str::from_utf8(json) {
        Ok(text) => read_text(text, what),
        Err(_) => checked(json, what, serde_json::from_slice(json)),
    }
}

/// Reads a JSON object, as [`read`] does.
pub(crate) fn read_text<'de, T: Deserialize<'de>>(json: &'de str, what: &str) -> Result<T, Fault> {
    checked(json.as_bytes(), what, serde_json::from_str(json))
}

fn checked<T>(json: &[u8], what: &str, parsed: serde_json::Result<T>) -> Result<T, Fault> {
    match parsed {
        // serde would accept an array of the fields in order, and read an error as an answer.
        Ok(object) if is_object(json) => Ok(object),
        Ok(_) => Err(unexpected(json, what, "not an object")),
        Err(error) => Err(unexpected(json, what, &error.to_string())),
    }
}

/// Reads a JSON object, as [`read`] does, into a value that is already there.
#[cfg(feature = "openai")]
pub(crate) fn read_into<'de, T: ReadFields<'de>>(
    json: &'de [u8],
    what: &str,
    value: &mut T,
) -> Result<(), Fault> {
    match std::str::from_utf8(json) {
        Ok(text) => read_text_into(text, what, value),
        Err(_) => filled(
            json,
            what,
            serde_json::Deserializer::from_slice(json),
            value,
        ),
    }
}

/// Reads a JSON object into a value that is already there.
#[cfg(any(feature = "gemini", feature = "openai"))]
pub(crate) fn read_text_into<'de, T: ReadFields<'de>>(
    json: &'de str,
    what: &str,
    value: &mut T,
) -> Result<(), Fault> {
    let reader = serde_json::Deserializer::from_str(json);
    filled(json.as_bytes(), what, reader, value)
}

#[cfg(any(feature = "gemini", feature = "openai"))]
fn filled<'de, T: ReadFields<'de>>(
    json: &[u8],
    what: &str,
    reader: serde_json::Deserializer<impl serde_json::de::Read<'de>>,
    value: &mut T,
) -> Result<(), Fault> {
    if !is_object(json) {
        return Err(unexpected(json, what, "not an object"));
    }
    fill(reader, value).map_err(|error| unexpected(json, what, &error.to_string()))
}

#[cfg(any(feature = "gemini", feature = "openai"))]
fn fill<'de, T: ReadFields<'de>>(
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
