//! The names of runs in a database, as addresses have them.

use crate::stored::{StoredHead, StoredKey};

/// Returns a text as it is stored: PostgreSQL takes no `NUL`.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Returns what names a run of the database to whoever looks: its id, and which one of it.
pub(crate) fn address(head: &StoredHead) -> String {
    let StoredKey { console, number } = &head.key;
    format!("{}~{console}.{number}", head.id)
}

/// Returns which run an address names, if it is one.
pub(crate) fn key_of(address: &str) -> Option<StoredKey> {
    let (_, key) = address.rsplit_once('~')?;
    let (console, number) = key.split_once('.')?;
    Some(StoredKey {
        console: without_nul(console),
        number: number.parse().ok()?,
    })
}
