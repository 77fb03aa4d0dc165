use std::time::Duration;

use sha2::digest::Output;
use sha2::{Digest, Sha256};
use sqlx::{Executor, PgConnection};
use tower_agent_middleware::rate_limit::RateState;

use crate::database::or_failure::OrFailure;
use tower_agent_conversations::StoreError;

// The time is the database's, in microseconds: machines whose clocks differ agree about it.
const READ: &str = "\
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT, \
    (SELECT state FROM tower_agent_rates WHERE id = $1)";

const INSERT: &str = "\
    INSERT INTO tower_agent_rates (id, state, unused_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";

const UPDATE: &str = "\
    UPDATE tower_agent_rates SET state = $2, unused_at = $3 WHERE id = $1 AND state = $4";

// The outer condition is checked again for a row that another process has changed meanwhile: it is
// in use.
const DELETE_UNUSED: &str = "\
    DELETE FROM tower_agent_rates WHERE unused_at <= (extract(epoch FROM now()) * 1000)::BIGINT \
    AND id IN (SELECT id FROM tower_agent_rates \
    WHERE unused_at <= (extract(epoch FROM now()) * 1000)::BIGINT \
    ORDER BY unused_at LIMIT 100 FOR UPDATE SKIP LOCKED)";

const MINUTE: i64 = 60_000;

/// The id of the row of a limit.
pub(super) type LimitId = Output<Sha256>;

/// Returns the id of the limit with this key, of any length and any characters.
pub(super) fn limit_id(key: &str) -> LimitId {
    Sha256::digest(key)
}

/// The row of a limit, as it was read.
pub(super) struct RateRow {
    /// The time of the database.
    pub(super) now: Duration,
    pub(super) state: RateState,
    /// The state as it is stored. `None` for a limit without a row, which is unused.
    stored: Option<String>,
}

impl RateRow {
    /// Reads the row of a limit, and locks nothing.
    pub(super) async fn read(
        connection: &mut PgConnection,
        id: &LimitId,
    ) -> Result<Self, StoreError> {
        let read = sqlx::query_as::<_, (i64, Option<String>)>(READ).bind(&id[..]);
        // Without a name, as all statements that may go through a pooler.
        let read = read.persistent(false);
        let (micros, stored) = read.fetch_one(connection).await.or_failure()?;
        let state = match &stored {
            Some(text) => serde_json::from_str(text).map_err(|error| unreadable(id, &error))?,
            None => RateState::default(),
        };
        Ok(Self {
            now: Duration::from_micros(u64::try_from(micros).unwrap_or(0)),
            state,
            stored,
        })
    }

    /// Returns whether the limit had no row.
    pub(super) fn is_new(&self) -> bool {
        self.stored.is_none()
    }

    /// Writes the state, and returns `false` if another process has written another one since the
    /// row was read.
    ///
    /// The stored state is compared, and not a version: a row may be deleted and created again, and
    /// equal states mean the same.
    pub(super) async fn write(
        &self,
        connection: &mut PgConnection,
        id: &LimitId,
    ) -> Result<bool, StoreError> {
        let state = serde_json::to_string(&self.state).map_err(StoreError::data)?;
        let write = sqlx::query(if self.is_new() { INSERT } else { UPDATE });
        let write = write.persistent(false);
        let write = write.bind(&id[..]).bind(state).bind(self.unused_at());
        let write = match &self.stored {
            Some(stored) => write.bind(stored),
            None => write,
        };
        let done = write.execute(connection).await.or_failure()?;
        Ok(done.rows_affected() == 1)
    }

    /// Returns the minute from which the state says nothing. Exact times would change the index
    /// with each write.
    fn unused_at(&self) -> i64 {
        let millis = self.state.unused_at().as_millis();
        let minutes = i64::try_from(millis).unwrap_or(i64::MAX) / MINUTE;
        minutes.saturating_add(1).saturating_mul(MINUTE)
    }
}

/// Deletes rows that say nothing any more, up to a hundred.
pub(super) async fn delete_unused(connection: &mut PgConnection) -> Result<(), StoreError> {
    let deleted = connection.execute(DELETE_UNUSED).await;
    deleted.or_failure().map(drop)
}

/// Returns the error of a state that cannot be read. To begin with an unused limit instead would
/// let calls through.
fn unreadable(id: &LimitId, error: &serde_json::Error) -> StoreError {
    StoreError::data(format!(
        "{error}; to begin with an unused limit, DELETE FROM tower_agent_rates WHERE id = '\\x{id:x}'"
    ))
}
