//! The record of who has written what.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::address::without_nul;
use crate::lock::lock;
use crate::stored::{StoredAudit, StoredKey, StoredPlace};

/// The number of rows in memory.
const ROWS: usize = 10_000;

/// The number of rows that are written at once.
const AT_ONCE: usize = 500;

/// The latest rows.
pub(crate) struct Audit {
    console: String,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    /// The oldest first.
    all: VecDeque<StoredAudit>,
    /// The number of the last one.
    last: u64,
    /// The number of the last one that is in the database.
    written: u64,
    /// Rows that went before they were written.
    unstored: u64,
}

/// A write.
pub(crate) struct AuditRow {
    /// In microseconds since 1970.
    pub(crate) at: u64,
    pub(crate) operator: Arc<str>,
    pub(crate) action: &'static str,
    /// The subject of it.
    pub(crate) about: String,
    /// The status of the response.
    pub(crate) status: u16,
}

impl Audit {
    /// Creates the audit of a console with this name.
    pub(crate) fn new(console: String) -> Self {
        Self {
            console,
            rows: Mutex::default(),
        }
    }

    pub(crate) fn add(&self, row: AuditRow, has_database: bool) {
        // In the program's log, too, which outlives the process.
        tracing::info!(
            operator = &*row.operator,
            action = row.action,
            about = row.about,
            status = row.status,
            "a write from the console"
        );
        let mut rows = lock(&self.rows);
        if rows.all.len() >= ROWS
            && let Some(gone) = rows.all.pop_front()
            && has_database
            && gone.place.key.number > rows.written
        {
            rows.unstored += 1;
        }
        rows.last += 1;
        let key = StoredKey {
            console: self.console.clone(),
            number: rows.last,
        };
        rows.all.push_back(StoredAudit {
            place: StoredPlace { begun: row.at, key },
            operator: without_nul(&row.operator),
            action: row.action.to_owned(),
            about: without_nul(&row.about),
            status: row.status,
        });
    }

    /// Returns the rows in memory that come behind this place, in any order.
    pub(crate) fn rows(&self, before: Option<&StoredPlace>) -> Vec<StoredAudit> {
        let rows = lock(&self.rows);
        let rows = rows.all.iter();
        let behind = rows.filter(|row| before.is_none_or(|before| row.place < *before));
        behind.cloned().collect()
    }

    /// Returns the next rows that are to be written, the oldest first.
    pub(crate) fn unwritten(&self) -> Vec<StoredAudit> {
        let rows = lock(&self.rows);
        let behind = rows.all.iter();
        let behind = behind.filter(|row| row.place.key.number > rows.written);
        behind.take(AT_ONCE).cloned().collect()
    }

    /// Notes that all rows are written until the one with this number.
    pub(crate) fn written(&self, number: u64) {
        lock(&self.rows).written = number;
    }

    pub(crate) fn count_unwritten(&self) -> usize {
        let rows = lock(&self.rows);
        usize::try_from(rows.last - rows.written)
            .unwrap_or(usize::MAX)
            .min(rows.all.len())
    }

    /// Returns the number of rows that went before they were written.
    pub(crate) fn unstored(&self) -> u64 {
        lock(&self.rows).unstored
    }
}
