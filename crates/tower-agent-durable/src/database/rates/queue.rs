use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgPool;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tower_agent_middleware::rate_limit::{RateChange, RateState};

use super::lines::{Answer, RateChanges, RateLine, RateUpdate, short, warn_lost};
use super::table::{LimitId, RateRow, limit_id};
use super::writer::{LONGEST_STATEMENT, RateWriter};
use crate::database::or_failure::OrFailure;
use crate::database::to_end::to_end;
use crate::lock::lock;
use tower_agent_conversations::StoreError;

/// The most ends of calls that wait: about 20 MB.
const MOST_ENDS: usize = 65_536;

/// Changes of limits on their way to the table.
///
/// All changes of a limit go through one task of this process, which applies those that have come
/// meanwhile in one read and one write. So its calls never get in each other's way, and a burst of
/// ends is one write. No lock is held between the read and the write: a process that is stalled
/// there stops nobody, and a call that is refused only reads. If another process has written
/// meanwhile, both are repeated.
#[derive(Clone)]
pub(crate) struct RateQueue(Arc<RateChanges>);

impl RateQueue {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self(Arc::new(RateChanges::new(pool)))
    }

    /// Applies a change, after those of the same limit that have come before it.
    pub(crate) async fn update(&self, key: &str, change: RateChange) -> Answer {
        let (caller, answer) = oneshot::channel();
        let mut waiting = RateCaller {
            queue: self,
            key,
            answer,
            inverse: change.inverse(),
        };
        self.push(key, RateUpdate::new(change, Some(caller)))?;
        (&mut waiting.answer).await.unwrap_or_else(|_| {
            Err(StoreError::database(
                "the runtime of the database has ended",
            ))
        })
    }

    /// Returns the state of a limit in the table, which what is on its way has not changed yet, and
    /// the time of the database.
    pub(crate) async fn read(&self, key: &str) -> Result<(RateState, Duration), StoreError> {
        let pool = self.0.pool.clone();
        let id = limit_id(key);
        to_end(async move {
            let mut connection = pool.acquire().await.or_failure()?;
            let read = timeout(LONGEST_STATEMENT, RateRow::read(&mut connection, &id)).await;
            match read {
                Ok(row) => row.map(|row| (row.state, row.now)),
                Err(_) => {
                    // It may still wait for an answer.
                    connection.close_on_drop();
                    Err(StoreError::database("no answer in time"))
                }
            }
        })
        .await
    }

    /// Applies the end of a call some time later.
    pub(crate) fn update_later(&self, key: &str, change: RateChange) {
        if let Err(error) = self.push(key, RateUpdate::new(change, None)) {
            warn_lost(&short(key), 1, &error);
        }
    }

    /// Hands a change to the task of its limit.
    ///
    /// # Errors
    ///
    /// Fails outside a runtime, or if too many ends of calls wait.
    fn push(&self, key: &str, update: RateUpdate) -> Result<(), StoreError> {
        let Ok(runtime) = Handle::try_current() else {
            return Err(StoreError::database("a database needs a Tokio runtime"));
        };
        let id = limit_id(key);
        if let Some(writer) = self.enter(key, id, update)? {
            // After the lock: a runtime that ends drops the writer at once.
            runtime.spawn(writer.run());
        }
        Ok(())
    }

    /// Adds an update to the line of its limit, and returns the writer of a line that is new.
    fn enter(
        &self,
        key: &str,
        id: LimitId,
        update: RateUpdate,
    ) -> Result<Option<RateWriter>, StoreError> {
        let lines = &mut *lock(&self.0.lines);
        if update.is_end() {
            if lines.ends >= MOST_ENDS {
                return Err(StoreError::database("too many ends of calls wait for it"));
            }
            lines.ends += 1;
        }
        if let Some(line) = lines.by_limit.get_mut(&id) {
            if !update.is_end() {
                line.wake.notify_one();
            }
            line.updates.push(update);
            return Ok(None);
        }
        let wake = Arc::<Notify>::default();
        let line = RateLine {
            updates: vec![update],
            wake: wake.clone(),
        };
        lines.by_limit.insert(id, line);
        let writer = RateWriter::new(self.0.clone(), id, short(key), wake);
        Ok(Some(writer))
    }

    /// Writes what is on its way, without pauses and each once, and returns when nothing is.
    pub(crate) async fn close(&self) {
        {
            let mut lines = lock(&self.0.lines);
            lines.is_closing = true;
            for line in lines.by_limit.values() {
                line.wake.notify_one();
            }
        }
        loop {
            // Before the look at the lines, so that no end is missed.
            let is_empty = self.0.is_empty.notified();
            if lock(&self.0.lines).by_limit.is_empty() {
                return;
            }
            is_empty.await;
        }
    }
}

/// A call that waits for its answer.
struct RateCaller<'a> {
    queue: &'a RateQueue,
    key: &'a str,
    answer: oneshot::Receiver<Answer>,
    inverse: Option<RateChange>,
}

impl Drop for RateCaller<'_> {
    /// Takes the change back if it was applied, but the call was dropped before it knew.
    fn drop(&mut self) {
        // Later answers cannot be sent, and are taken back by the task.
        self.answer.close();
        if let Ok(Ok(None)) = self.answer.try_recv()
            && let Some(inverse) = self.inverse.take()
        {
            self.queue.update_later(self.key, inverse);
        }
    }
}
