use serde::Serialize;

use super::items::Items;
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
    Items::array(out, |array| {
        for item in items {
            array.item_with(|out| write(item, out))?;
        }
        Ok(())
    })
}

/// Ends an array or an object. Each item and field ends with a comma, so the last one is replaced.
pub(super) fn close(out: &mut Vec<u8>, with: u8) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(with);
}
