use super::key::SessionKey;
use super::list::list;
use super::query::{SessionInfo, SessionQuery};
use super::rows::{ListRow, LoadRow, info, is_gapless, session, signed, unsigned};
use super::store::{Append, SessionStore, StoredSession};
use crate::database::{OrFailure, Sqlite, to_end};
use crate::error::StoreError;
use crate::time::{millis, now};

const LOAD: &str = "\
    SELECT -1 AS position, version, head AS entry FROM tower_agent_sessions \
    WHERE app = ?1 AND owner = ?2 AND session = ?3 AND (expires_at IS NULL OR expires_at > ?4) \
    UNION ALL \
    SELECT e.position, e.version, e.entry FROM tower_agent_sessions s \
    JOIN tower_agent_session_entries e ON e.session = s.id \
    WHERE s.app = ?1 AND s.owner = ?2 AND s.session = ?3 \
    AND (s.expires_at IS NULL OR s.expires_at > ?4) AND e.replaced_in IS NULL \
    ORDER BY position";

const NEXT_VERSION: &str = "UPDATE tower_agent_session_versions SET last = last + 1 RETURNING last";

const DELETE_EXPIRED_ONE: &str = "\
    DELETE FROM tower_agent_sessions \
    WHERE app = ?1 AND owner = ?2 AND session = ?3 AND expires_at <= ?4";

const CREATE: &str = "\
    INSERT INTO tower_agent_sessions (app, owner, session, kind, version, head, is_waiting, updated_at, expires_at) \
    VALUES (?1, ?2, ?3, ?8, ?5, ?6, ?9, ?4, ?7) ON CONFLICT DO NOTHING RETURNING id";

const UPDATE: &str = "\
    UPDATE tower_agent_sessions SET kind = ?8, version = ?5, head = ?6, is_waiting = ?9, updated_at = ?4, \
    expires_at = ?7 \
    WHERE app = ?1 AND owner = ?2 AND session = ?3 AND version = ?10 \
    AND (expires_at IS NULL OR expires_at > ?4) RETURNING id";

const REPLACE: &str = "\
    UPDATE tower_agent_session_entries SET replaced_in = ?3 \
    WHERE session = ?1 AND position >= ?2 AND replaced_in IS NULL";

const INSERT: &str = "\
    INSERT INTO tower_agent_session_entries (session, position, version, entry) \
    SELECT ?1, ?2 + key, ?3, value FROM json_each(?4) \
    WHERE ?2 = 0 OR EXISTS (SELECT 1 FROM tower_agent_session_entries \
    WHERE session = ?1 AND position = ?2 - 1 AND replaced_in IS NULL)";

const DELETE: &str = "\
    DELETE FROM tower_agent_sessions WHERE app = ?1 AND owner = ?2 AND session = ?3 \
    RETURNING (expires_at IS NULL OR expires_at > ?4)";

impl Sqlite {
    async fn append_to(
        &self,
        key: &SessionKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        let app = &*key.app;
        let user = &*key.user;
        let name = &*key.session;
        let now = now();
        let from = signed(append.from as u64);
        let mut tx = self.begin().await?;
        // Counted over all sessions and never taken back, so that a version is not used twice for a
        // key, also after a delete.
        let (version,): (i64,) = sqlx::query_as(NEXT_VERSION)
            .fetch_one(tx.connection())
            .await
            .or_failure()?;
        // An expired session does not exist, but its row would be in the way of the new one.
        if expected == 0 {
            let delete = sqlx::query(DELETE_EXPIRED_ONE)
                .bind(app)
                .bind(user)
                .bind(name)
                .bind(now);
            delete.execute(tx.connection()).await.or_failure()?;
        }
        let write = sqlx::query_as::<_, (i64,)>(if expected == 0 { CREATE } else { UPDATE });
        let write = write
            .bind(app)
            .bind(user)
            .bind(name)
            .bind(now)
            .bind(version);
        let write = write.bind(&append.head).bind(append.expires_at.map(millis));
        let write = write.bind(&*append.kind).bind(append.is_waiting);
        let write = if expected == 0 {
            write
        } else {
            write.bind(signed(expected))
        };
        let Some((id,)) = write.fetch_optional(tx.connection()).await.or_failure()? else {
            return Err(StoreError::Conflict { expected });
        };
        // The entries from `from` on make room for the new ones.
        if expected != 0 {
            let replace = sqlx::query(REPLACE).bind(id).bind(from).bind(version);
            replace.execute(tx.connection()).await.or_failure()?;
        }
        if !append.entries.is_empty() {
            let entries = serde_json::to_string(&append.entries).map_err(StoreError::data)?;
            let insert = sqlx::query(INSERT)
                .bind(id)
                .bind(from)
                .bind(version)
                .bind(entries);
            let inserted = insert.execute(tx.connection()).await.or_failure()?;
            is_gapless(inserted.rows_affected(), &append)?;
        }
        tx.commit().await?;
        Ok(unsigned(version))
    }
}

impl SessionStore for Sqlite {
    async fn load(&self, key: &SessionKey) -> Result<Option<StoredSession>, StoreError> {
        key.check()?;
        let rows = sqlx::query_as::<_, LoadRow>(LOAD);
        let rows = rows
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.session)
            .bind(now());
        session(rows.fetch_all(self.readers()).await.or_failure()?)
    }

    async fn append(
        &self,
        key: &SessionKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        key.check()?;
        let database = self.clone();
        let key = key.clone();
        to_end(async move { database.append_to(&key, expected, append).await }).await
    }

    async fn list(&self, query: &SessionQuery) -> Result<Vec<SessionInfo>, StoreError> {
        query.check()?;
        let mut sql = list(query);
        let rows = sql.build_query_as::<ListRow>();
        let rows = rows.fetch_all(self.readers()).await.or_failure()?;
        Ok(rows.into_iter().map(info).collect())
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError> {
        key.check()?;
        let delete = sqlx::query_as::<_, (bool,)>(DELETE);
        let delete = delete
            .bind(&*key.app)
            .bind(&*key.user)
            .bind(&*key.session)
            .bind(now());
        let existed = delete.fetch_optional(self.writer()).await.or_failure()?;
        self.wipe().await;
        Ok(existed.is_some_and(|(existed,)| existed))
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        let delete = sqlx::query("DELETE FROM tower_agent_sessions WHERE expires_at <= ?1");
        let deleted = delete.bind(now()).execute(self.writer()).await;
        let deleted = deleted.or_failure()?.rows_affected();
        if deleted > 0 {
            self.wipe().await;
        }
        Ok(deleted)
    }
}
