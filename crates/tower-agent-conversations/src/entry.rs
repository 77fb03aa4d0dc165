use crate::error::StoreError;
use crate::json::to_json;
use crate::policy::Policy;
use crate::threads::Entry;

/// Returns the message of a stored entry, as JSON, for a journal that refers to it. An entry of a
/// thread may have none.
///
/// # Errors
///
/// Fails if the entry is not of this [kind](crate::Append::kind).
pub fn message_of_entry(kind: &str, entry: &str) -> Result<Option<String>, StoreError> {
    if kind != Policy::Thread.kind() {
        return Ok(Some(entry.to_owned()));
    }
    let entry: Entry = serde_json::from_str(entry).map_err(StoreError::data)?;
    entry.message.map(|message| to_json(&message)).transpose()
}
