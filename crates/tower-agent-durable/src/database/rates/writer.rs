use std::future::Future;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::sync::Notify;
use tokio::time::timeout;
use tower_agent_middleware::rate_limit::Exhausted;

use super::lines::{RateChanges, RateUpdate, warn_lost};
use super::table::{LimitId, RateRow, delete_unused};
use crate::database::or_failure::{OrFailure, failure};
use crate::database::pooled::BEGIN;
use crate::lock::lock;
use tower_agent_conversations::StoreError;

/// The time that the end of a call waits for another change of its limit, with which it is written.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause between two attempts to write the ends of calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The age at which the end of a call is no longer tried. What was reserved has come back with the
/// time by then, and would be given back twice.
const OLDEST: Duration = Duration::from_secs(60);

/// The number of times that other processes may come between the read and the write of a change.
const MOST_RACES: u32 = 100;

/// The time that a statement may take. A server that is cut off would otherwise keep calls waiting
/// for minutes.
pub(super) const LONGEST_STATEMENT: Duration = Duration::from_secs(10);

/// The task of one limit, until its line is empty.
pub(super) struct RateWriter {
    changes: Arc<RateChanges>,
    id: LimitId,
    /// The limit's key, for people.
    limit: String,
    wake: Arc<Notify>,
    /// The updates that are being written.
    batch: Vec<RateUpdate>,
    has_ended: bool,
}

impl RateWriter {
    pub(super) fn new(
        changes: Arc<RateChanges>,
        id: LimitId,
        limit: String,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            changes,
            id,
            limit,
            wake,
            batch: Vec::new(),
            has_ended: false,
        }
    }

    pub(super) async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            if !self.is_urgent() {
                // Woken or not, it looks at its line.
                let _ = timeout(pause, self.wake.notified()).await;
            }
            if !self.take() {
                return;
            }
            // A call that was dropped before its turn takes nothing.
            self.batch.retain(|update| !update.is_dropped());
            if self.batch.is_empty() {
                continue;
            }
            match self.write().await {
                Ok(answers) => {
                    pause = FIRST_PAUSE;
                    self.succeed(answers);
                }
                Err(error) => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    self.fail(&error);
                }
            }
        }
    }

    /// Returns whether somebody waits for its changes.
    fn is_urgent(&self) -> bool {
        let lines = lock(&self.changes.lines);
        let line = lines.by_limit.get(&self.id);
        lines.is_closing
            || line.is_some_and(|line| line.updates.iter().any(|update| !update.is_end()))
    }

    /// Takes the updates of its line, and returns `false` if there are none: then the line has
    /// ended.
    fn take(&mut self) -> bool {
        let lines = &mut *lock(&self.changes.lines);
        self.batch = lines.take(&self.id);
        if self.batch.is_empty() {
            self.changes.end(lines, &self.id);
            self.has_ended = true;
        }
        !self.has_ended
    }

    /// Applies the batch to the row of the limit, and returns the answers in its order.
    async fn write(&self) -> Result<Vec<Option<Exhausted>>, WriteError> {
        let mut connection = self.changes.pool.acquire().await.or_failure()?;
        let written = self.write_with(&mut connection).await;
        if written.is_err() {
            // It may still wait for an answer.
            connection.close_on_drop();
        }
        written
    }

    async fn write_with(
        &self,
        connection: &mut PgConnection,
    ) -> Result<Vec<Option<Exhausted>>, WriteError> {
        let mut transaction = in_time(connection.begin_with(BEGIN)).await?.or_failure()?;
        for _ in 0..MOST_RACES {
            let mut row = in_time(RateRow::read(&mut transaction, &self.id)).await??;
            let mut answers = Vec::with_capacity(self.batch.len());
            let mut is_changed = false;
            for update in &self.batch {
                let exhausted = update.change.apply(&mut row.state, row.now);
                is_changed |= exhausted.is_none();
                answers.push(exhausted);
            }
            // A call that is refused has used nothing, and what has come back is computed again
            // next time.
            if !is_changed {
                return Ok(answers);
            }
            if in_time(row.write(&mut transaction, &self.id)).await?? {
                commit(transaction).await?;
                if row.is_new() {
                    tidy(connection).await;
                }
                return Ok(answers);
            }
        }
        let error = format!("others have changed the limit {MOST_RACES} times meanwhile");
        Err(StoreError::database(error).into())
    }

    /// Answers the calls that wait, and takes the changes back of those that were dropped
    /// meanwhile.
    fn succeed(&mut self, answers: Vec<Option<Exhausted>>) {
        let batch = self.batch.drain(..).zip(answers);
        let inverses = batch.filter_map(|(update, answer)| update.answer(Ok(answer)));
        let inverses: Vec<_> = inverses.collect();
        let lines = &mut *lock(&self.changes.lines);
        if let Some(line) = lines.by_limit.get_mut(&self.id) {
            lines.ends += inverses.len();
            let inverses = inverses.into_iter();
            line.updates
                .extend(inverses.map(|inverse| RateUpdate::new(inverse, None)));
        }
    }

    /// Fails the calls that wait, so that none is let through, and tries the ends of calls again
    /// later.
    fn fail(&mut self, error: &WriteError) {
        let mut lost = 0;
        let mut again = Vec::new();
        let mut lines = lock(&self.changes.lines);
        for update in self.batch.drain(..) {
            if !update.is_end() {
                // Nothing to take back.
                let _ = update.answer(Err(error.error.clone()));
            // Written twice, it would give back twice.
            } else if error.is_undecided || lines.is_closing || update.since.elapsed() > OLDEST {
                lost += 1;
            } else {
                again.push(update);
            }
        }
        lines.ends += again.len();
        if let Some(line) = lines.by_limit.get_mut(&self.id) {
            again.append(&mut line.updates);
            line.updates = again;
        }
        drop(lines);
        if lost > 0 {
            warn_lost(&self.limit, lost, &error.error);
        }
    }
}

impl Drop for RateWriter {
    /// Ends the line if the runtime has ended, so that the next update gets a task of another
    /// runtime.
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut updates = mem::take(&mut self.batch);
        {
            let lines = &mut *lock(&self.changes.lines);
            updates.append(&mut lines.take(&self.id));
            self.changes.end(lines, &self.id);
        }
        let lost = updates.iter().filter(|update| update.is_end()).count();
        if lost > 0 {
            warn_lost(&self.limit, lost, &"the runtime has ended");
        }
    }
}

/// The error of a write.
struct WriteError {
    error: StoreError,
    /// It may have been written nevertheless.
    is_undecided: bool,
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            is_undecided: false,
        }
    }
}

async fn commit(transaction: sqlx::Transaction<'_, sqlx::Postgres>) -> Result<(), WriteError> {
    let (error, is_undecided) = match in_time(transaction.commit()).await {
        Ok(Ok(())) => return Ok(()),
        // Without an answer it may have been written.
        Ok(Err(error)) => {
            let is_undecided = error.as_database_error().is_none();
            (failure(error), is_undecided)
        }
        Err(error) => (error, true),
    };
    Err(WriteError {
        error,
        is_undecided,
    })
}

/// Waits for a statement.
async fn in_time<T>(statement: impl Future<Output = T>) -> Result<T, StoreError> {
    let answered = timeout(LONGEST_STATEMENT, statement).await;
    answered.map_err(|_| {
        StoreError::database(format!(
            "no answer within {} seconds",
            LONGEST_STATEMENT.as_secs()
        ))
    })
}

/// Deletes a few unused rows. Their number grows only with new ones.
async fn tidy(connection: &mut PgConnection) {
    let deleted = in_time(delete_unused(connection)).await;
    if let Err(error) = deleted.flatten() {
        tracing::warn!(%error, "rows of unused rate limits not deleted");
    }
}
