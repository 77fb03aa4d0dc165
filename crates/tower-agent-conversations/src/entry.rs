use crate::error::StoreError;
use crate::json::to_json;
use crate::policy::Policy;
use crate::threads::LogItem;

/// Returns the message of a stored entry, as JSON, for a journal that refers to it. An entry of a
/// thread may have none, as one that says that a run began.
///
/// # Errors
///
/// Fails if the entry is not of this [kind](crate::Append::kind).
pub fn message_of_entry(kind: &str, entry: &str) -> Result<Option<String>, StoreError> {
    if kind != Policy::Thread.kind() {
        return Ok(Some(entry.to_owned()));
    }
    let LogItem::Entry(entry) = LogItem::read(entry)? else {
        return Ok(None);
    };
    entry.message.map(|message| to_json(&message)).transpose()
}
