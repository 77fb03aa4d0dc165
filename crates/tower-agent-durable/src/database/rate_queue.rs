use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::PgPool;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};
use tower_agent_middleware::rate_limit::{Exhausted, RateChange};

use super::or_failure::OrFailure;
use super::rate_table::{LimitId, RateRow, WriteError, delete_unused, limit_id};
use crate::error::StoreError;
use crate::lock::lock;

/// The most ends of calls that wait: about 20 MB.
const MOST_ENDS: usize = 65_536;

/// How long the end of a call waits for another change of its limit, with which it is written.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The longest pause between two attempts to write the ends of calls.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The age at which the end of a call is no longer tried. What was reserved has come back with the time by then,
/// and would be given back twice.
const OLDEST: Duration = Duration::from_secs(60);

/// How often other processes may come between the read and the write of a change.
const MOST_RACES: u32 = 100;

/// How long a statement may take. A server that is cut off would otherwise keep calls waiting for minutes.
const LONGEST_STATEMENT: Duration = Duration::from_secs(10);

/// The answer to a call that waits.
type Answer = Result<Option<Exhausted>, StoreError>;

/// Changes of limits on their way to the table.
///
/// All changes of a limit go through one task of this process, which applies those that have come meanwhile in one
/// read and one write. So its calls never get in each other's way, and a burst of ends is one write. No lock is
/// held between the read and the write: a process that is stalled there stops nobody, and a call that is refused
/// only reads. If another process has written meanwhile, both are repeated.
#[derive(Clone)]
pub(super) struct RateQueue(Arc<RateChanges>);

struct RateChanges {
    pool: PgPool,
    lines: Mutex<RateLines>,
    /// Told when the last line has ended.
    is_empty: Notify,
}

#[derive(Default)]
struct RateLines {
    /// The limits of which there is a task.
    by_limit: HashMap<LimitId, RateLine>,
    /// The number of ends of calls in all lines.
    ends: usize,
    is_closing: bool,
}

/// The changes of one limit, in order.
#[derive(Default)]
struct RateLine {
    updates: Vec<RateUpdate>,
    /// Ends the pause of the task.
    wake: Arc<Notify>,
}

struct RateUpdate {
    change: RateChange,
    since: Instant,
    /// The call that waits for the answer. `None` for the end of a call.
    caller: Option<oneshot::Sender<Answer>>,
}

impl RateUpdate {
    fn new(change: RateChange, caller: Option<oneshot::Sender<Answer>>) -> Self {
        Self {
            change,
            since: Instant::now(),
            caller,
        }
    }

    fn is_end(&self) -> bool {
        self.caller.is_none()
    }

    /// Returns whether its call was dropped while it waited, and so uses nothing.
    fn is_dropped(&self) -> bool {
        self.caller.as_ref().is_some_and(oneshot::Sender::is_closed)
    }

    /// Answers the call. Returns the change to be taken back if the call was dropped meanwhile.
    fn answer(self, answer: Answer) -> Option<RateChange> {
        match self.caller?.send(answer) {
            Err(Ok(None)) => self.change.inverse(),
            _ => None,
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

impl RateLines {
    /// Takes the updates of a limit. They are not counted any more.
    fn take(&mut self, limit: &LimitId) -> Vec<RateUpdate> {
        let Some(line) = self.by_limit.get_mut(limit) else {
            return Vec::new();
        };
        let updates = mem::take(&mut line.updates);
        self.ends -= updates.iter().filter(|update| update.is_end()).count();
        updates
    }
}

impl RateQueue {
    pub(super) fn new(pool: PgPool) -> Self {
        Self(Arc::new(RateChanges {
            pool,
            lines: Mutex::default(),
            is_empty: Notify::new(),
        }))
    }

    /// Applies a change, after those of the same limit that have come before it.
    pub(super) async fn update(&self, key: &str, change: RateChange) -> Answer {
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

    /// Applies the end of a call some time later.
    pub(super) fn update_later(&self, key: &str, change: RateChange) {
        if let Err(error) = self.push(key, RateUpdate::new(change, None)) {
            warn_lost(&short(key), 1, &error);
        }
    }

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
        Ok(Some(RateWriter {
            queue: self.clone(),
            id,
            limit: short(key),
            wake,
            batch: Vec::new(),
            has_ended: false,
        }))
    }

    /// Ends a line that is empty.
    fn end(&self, lines: &mut RateLines, limit: &LimitId) {
        lines.by_limit.remove(limit);
        if lines.by_limit.is_empty() {
            self.0.is_empty.notify_waiters();
        }
    }

    /// Writes what is on its way, without pauses and each once, and returns when nothing is.
    pub(super) async fn close(&self) {
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

/// The task of one limit, until its line is empty.
struct RateWriter {
    queue: RateQueue,
    id: LimitId,
    /// The limit's key, for people.
    limit: String,
    wake: Arc<Notify>,
    /// The updates that are being written.
    batch: Vec<RateUpdate>,
    has_ended: bool,
}

impl RateWriter {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            if !self.is_urgent() {
                // Woken or not, it looks at its line.
                let _ = timeout(pause, self.wake.notified()).await;
            }
            if !self.take() {
                return;
            }
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
        let lines = lock(&self.queue.0.lines);
        let line = lines.by_limit.get(&self.id);
        lines.is_closing
            || line.is_some_and(|line| line.updates.iter().any(|update| !update.is_end()))
    }

    /// Takes the updates of its line, and returns `false` if there are none: then the line has ended.
    fn take(&mut self) -> bool {
        let lines = &mut *lock(&self.queue.0.lines);
        self.batch = lines.take(&self.id);
        if self.batch.is_empty() {
            self.queue.end(lines, &self.id);
            self.has_ended = true;
        }
        !self.has_ended
    }

    /// Applies the batch to the row of the limit, and returns the answers in its order.
    async fn write(&self) -> Result<Vec<Option<Exhausted>>, WriteError> {
        let mut connection = self.queue.0.pool.acquire().await.or_failure()?;
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
        for _ in 0..MOST_RACES {
            let read = timeout(LONGEST_STATEMENT, RateRow::read(connection, &self.id)).await;
            let mut row = read.map_err(|_| no_answer())??;
            let mut answers = Vec::with_capacity(self.batch.len());
            let mut is_changed = false;
            for update in &self.batch {
                let exhausted = update.change.apply(&mut row.state, row.now);
                is_changed |= exhausted.is_none();
                answers.push(exhausted);
            }
            // A call that is refused has used nothing, and what has come back is computed again next time.
            if !is_changed {
                return Ok(answers);
            }
            let write = timeout(LONGEST_STATEMENT, row.write(connection, &self.id)).await;
            let is_written = write.map_err(|_| WriteError {
                error: no_answer(),
                is_undecided: true,
            })??;
            if is_written {
                if row.is_new() {
                    tidy(connection).await;
                }
                return Ok(answers);
            }
        }
        let error = format!("others have changed the limit {MOST_RACES} times meanwhile");
        Err(StoreError::database(error).into())
    }

    fn succeed(&mut self, answers: Vec<Option<Exhausted>>) {
        let batch = self.batch.drain(..).zip(answers);
        let inverses = batch.filter_map(|(update, answer)| update.answer(Ok(answer)));
        let inverses: Vec<_> = inverses.collect();
        let lines = &mut *lock(&self.queue.0.lines);
        if let Some(line) = lines.by_limit.get_mut(&self.id) {
            lines.ends += inverses.len();
            let inverses = inverses.into_iter();
            line.updates
                .extend(inverses.map(|inverse| RateUpdate::new(inverse, None)));
        }
    }

    /// Fails the calls that wait, so that none is let through, and tries the ends of calls again later.
    fn fail(&mut self, error: &WriteError) {
        let mut lost = 0;
        let mut again = Vec::new();
        let mut lines = lock(&self.queue.0.lines);
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
    /// Ends the line if the runtime has ended, so that the next update gets a task of another runtime.
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut updates = mem::take(&mut self.batch);
        {
            let lines = &mut *lock(&self.queue.0.lines);
            updates.append(&mut lines.take(&self.id));
            self.queue.end(lines, &self.id);
        }
        let lost = updates.iter().filter(|update| update.is_end()).count();
        if lost > 0 {
            warn_lost(&self.limit, lost, &"the runtime has ended");
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::database(format!(
        "no answer within {} seconds",
        LONGEST_STATEMENT.as_secs()
    ))
}

/// Deletes a few unused rows. Their number grows only with new ones.
async fn tidy(connection: &mut PgConnection) {
    let deleted = timeout(LONGEST_STATEMENT, delete_unused(connection)).await;
    if let Err(error) = deleted.unwrap_or_else(|_| Err(no_answer())) {
        tracing::warn!(%error, "rows of unused rate limits not deleted");
    }
}

fn warn_lost(limit: &str, calls: usize, error: &dyn fmt::Display) {
    tracing::warn!(limit, calls, %error, "ends of calls not stored: these count as reserved");
}

/// Returns the key of a limit in a line of text, which may be any text of a client.
pub(super) fn short(key: &str) -> String {
    const LENGTH: usize = 80;
    let printed = key.chars().filter(|char| !char.is_control());
    let mut short: String = printed.take(LENGTH).collect();
    if short.len() < key.len() {
        short.push('…');
    }
    short
}
