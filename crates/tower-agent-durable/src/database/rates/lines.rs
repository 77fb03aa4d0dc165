use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};

use sqlx::postgres::PgPool;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tower_agent_middleware::rate_limit::{Exhausted, RateChange};

use super::table::LimitId;
use tower_agent_conversations::StoreError;

/// The answer to a call that waits.
pub(super) type Answer = Result<Option<Exhausted>, StoreError>;

/// Changes of limits on their way to the table.
pub(super) struct RateChanges {
    pub(super) pool: PgPool,
    pub(super) lines: Mutex<RateLines>,
    /// Notified when the last line has ended.
    pub(super) is_empty: Notify,
}

#[derive(Default)]
pub(super) struct RateLines {
    /// The limits that have a task.
    pub(super) by_limit: HashMap<LimitId, RateLine>,
    /// The number of ends of calls in all lines.
    pub(super) ends: usize,
    pub(super) is_closing: bool,
}

/// The changes of one limit, in order.
pub(super) struct RateLine {
    pub(super) updates: Vec<RateUpdate>,
    /// Ends the pause of the task.
    pub(super) wake: Arc<Notify>,
}

pub(super) struct RateUpdate {
    pub(super) change: RateChange,
    pub(super) since: Instant,
    /// The call that waits for the answer. `None` for the end of a call.
    caller: Option<oneshot::Sender<Answer>>,
}

impl RateChanges {
    pub(super) fn new(pool: PgPool) -> Self {
        Self {
            pool,
            lines: Mutex::default(),
            is_empty: Notify::new(),
        }
    }

    /// Ends a line that is empty.
    pub(super) fn end(&self, lines: &mut RateLines, limit: &LimitId) {
        lines.by_limit.remove(limit);
        if lines.by_limit.is_empty() {
            self.is_empty.notify_waiters();
        }
    }
}

impl RateUpdate {
    pub(super) fn new(change: RateChange, caller: Option<oneshot::Sender<Answer>>) -> Self {
        Self {
            change,
            since: Instant::now(),
            caller,
        }
    }

    pub(super) fn is_end(&self) -> bool {
        self.caller.is_none()
    }

    /// Returns whether its call was dropped while it waited, and so uses nothing.
    pub(super) fn is_dropped(&self) -> bool {
        self.caller.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Answers the call. Returns the change to be taken back if the call was dropped meanwhile.
    pub(super) fn answer(self, answer: Answer) -> Option<RateChange> {
        match self.caller?.send(answer) {
            Err(Ok(None)) => self.change.inverse(),
            _ => None,
        }
    }
}

impl RateLines {
    /// Takes the updates of a limit. They are not counted any more.
    pub(super) fn take(&mut self, limit: &LimitId) -> Vec<RateUpdate> {
        let Some(line) = self.by_limit.get_mut(limit) else {
            return Vec::new();
        };
        let updates = mem::take(&mut line.updates);
        self.ends -= updates.iter().filter(|update| update.is_end()).count();
        updates
    }
}

pub(super) fn warn_lost(limit: &str, calls: usize, error: &dyn fmt::Display) {
    tracing::warn!(limit, calls, %error, "ends of calls not stored: these count as reserved");
}

/// Returns the key of a limit in a line of text, which may be any text of a client.
pub(in crate::database) fn short(key: &str) -> String {
    const LENGTH: usize = 80;
    let printed = key.chars().filter(|char| !char.is_control());
    let mut short: String = printed.take(LENGTH).collect();
    if short.len() < key.len() {
        short.push('…');
    }
    short
}
