use serde::Serialize;

use tower_agent::error::Result;

/// Appends a value.
///
/// # Errors
///
/// Fails if the value cannot be serialised.
pub fn write(out: &mut Vec<u8>, value: impl Serialize) -> Result<()> {
    Ok(serde_json::to_writer(out, &value)?)
}

/// Ends an array or an object. Each item and field ends with a comma, so the last one is replaced.
pub(super) fn close(out: &mut Vec<u8>, with: u8) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(with);
}
