//! Writes JSON that can be read again.

use std::io;

use serde::Serialize;

use crate::error::StoreError;

/// The number of levels of arrays and objects that serde_json reads. It writes any.
const MAX_LEVELS: usize = 127;

/// The room that is left behind a long string, for what follows it.
const SPARE: usize = 512;

/// Takes little more room than the text has: one that doubles has twice that when something short
/// follows a string of megabytes, and a store in memory keeps it.
struct Buffer(Vec<u8>);

impl io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > SPARE {
            self.0.reserve_exact(bytes.len() + SPARE);
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes data as JSON.
///
/// # Errors
///
/// Fails if it is nested too deeply to be read again: stored, it would make all that is stored with
/// it unreadable.
pub fn to_json(data: &impl Serialize) -> Result<String, StoreError> {
    let mut buffer = Buffer(Vec::with_capacity(SPARE));
    serde_json::to_writer(&mut buffer, data).map_err(StoreError::data)?;
    let text = String::from_utf8(buffer.0).map_err(StoreError::data)?;
    if is_too_deep(&text) {
        let why = format!("JSON nested more than {MAX_LEVELS} levels deep could not be read again");
        return Err(StoreError::data(why));
    }
    Ok(text)
}

/// Returns whether a JSON text has too many levels.
fn is_too_deep(json: &str) -> bool {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                if depth > MAX_LEVELS {
                    return true;
                }
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}
