//! The limits of ids that are part of a key.

use crate::error::StoreError;

/// The maximum length of the name of an application or a user, in bytes.
pub(crate) const NAME: usize = 512;

/// The maximum length of the id of a session or a run, in bytes.
pub(crate) const ID: usize = 1024;

/// Fails for an id that some database cannot have in a key. All of them refuse it, so that a
/// program may move from one to another.
pub(crate) fn check(part: &'static str, id: &str, most: usize) -> Result<(), StoreError> {
    let why = if id.len() > most {
        format!("is {} bytes long, and may have {most}", id.len())
    } else if id.contains('\0') {
        "contains a NUL character".to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::Id {
        part: part.into(),
        why,
    })
}
