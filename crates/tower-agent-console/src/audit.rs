//! The record of who has written what.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use serde::Serialize;

use crate::lock::lock;

/// The number of rows that are kept.
const ROWS: usize = 10_000;

/// The rows, the oldest first.
#[derive(Default)]
pub(crate) struct Audit(Mutex<VecDeque<AuditRow>>);

/// A write.
#[derive(Clone, Debug, Serialize)]
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
    pub(crate) fn add(&self, row: AuditRow) {
        // In the program's log, too, which outlives the process.
        tracing::info!(
            operator = &*row.operator,
            action = row.action,
            about = row.about,
            status = row.status,
            "a write from the console"
        );
        let mut rows = lock(&self.0);
        if rows.len() >= ROWS {
            rows.pop_front();
        }
        rows.push_back(row);
    }

    /// Returns the rows, the latest first.
    pub(crate) fn rows(&self) -> Vec<AuditRow> {
        lock(&self.0).iter().rev().cloned().collect()
    }
}
