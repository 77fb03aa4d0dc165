//! Rows of a database as sessions.

use super::key::SessionKey;
use super::query::SessionInfo;
use super::store::{Append, StoredSession};
use crate::error::StoreError;
use crate::time::time;

/// A row of a load: the head with its version, or an entry.
pub(super) type LoadRow = (i64, i64, String);

/// A row of a list.
pub(super) type ListRow = (String, String, String, String, i64, i64, bool, Option<i64>);

/// The position of the head among the entries.
pub(super) const HEAD: i64 = -1;

/// Returns the session of the rows, which are ordered by position.
pub(super) fn session(rows: Vec<LoadRow>) -> Result<Option<StoredSession>, StoreError> {
    let mut rows = rows.into_iter();
    let Some((HEAD, version, head)) = rows.next() else {
        return Ok(None);
    };
    let mut session = StoredSession::new(unsigned(version), head);
    session.entries.reserve(rows.len());
    for (position, _, entry) in rows {
        // A conversation with a gap must not be continued.
        if usize::try_from(position) != Ok(session.entries.len()) {
            return Err(StoreError::data("an entry of the session is missing"));
        }
        session.entries.push(entry);
    }
    Ok(Some(session))
}

/// Fails unless all entries were inserted: none are if one before them is missing.
pub(super) fn is_gapless(inserted: u64, append: &Append) -> Result<(), StoreError> {
    if inserted == append.entries.len() as u64 {
        return Ok(());
    }
    let message = format!("there is no entry before position {}", append.from);
    Err(StoreError::data(message))
}

pub(super) fn info(row: ListRow) -> SessionInfo {
    let (app, user, session, kind, version, updated_at, is_waiting, expires_at) = row;
    let key = SessionKey::new(app, user, session);
    SessionInfo::new(key, unsigned(version), time(updated_at))
        .kind(kind)
        .waiting(is_waiting)
        .expires_at(expires_at.map(time))
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
