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

/// Appends an array, each item of which is appended by `write`.
///
/// # Errors
///
/// Returns the error of `write`.
pub fn array<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    write: impl Fn(T, &mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    out.push(b'[');
    for item in items {
        write(item, out)?;
        out.push(b',');
    }
    end_array(out);
    Ok(())
}

/// Ends an array whose items each end with a comma, as messages do that are appended by
/// [`write_messages`](tower_agent::ModelRequest::write_messages).
pub fn end_array(out: &mut Vec<u8>) {
    close(out, b']');
}

pub(super) fn close(out: &mut Vec<u8>, with: u8) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(with);
}
