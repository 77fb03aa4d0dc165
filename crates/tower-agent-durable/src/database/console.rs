//! `Sqlite, Postgres: RunStore`, with the feature `console`.

use futures_util::future::BoxFuture;
use tower_agent::error::{Error, ErrorKind};
use tower_agent_console::{
    RunStore, StoredAudit, StoredBounds, StoredEntry, StoredHead, StoredKey, StoredPlace,
    StoredQuery, StoredRun,
};
use tower_agent_conversations::StoreError;

#[cfg(feature = "postgres")]
use super::postgres::Postgres;
use super::sql::{Dialect, Durability, Row, Sql, Value, Wait};
#[cfg(feature = "sqlite")]
use super::sqlite::Sqlite;
use super::to_end::to_end;

const DELETE: &str = "DELETE FROM tower_agent_console_runs WHERE console = $1 AND number = $2";

const DELETE_OF_USER: &str = "DELETE FROM tower_agent_console_runs WHERE owner = $1";

const INSERT: &str = "\
    INSERT INTO tower_agent_console_runs \
    (console, number, id, agent, name, status, owner, begun, heard, bytes, summary) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) RETURNING row_id";

const UPDATE: &str = "\
    UPDATE tower_agent_console_runs SET id = $3, agent = $4, name = $5, status = $6, owner = $7, \
    begun = $8, heard = $9, bytes = $10, summary = $11 WHERE console = $1 AND number = $2 \
    RETURNING row_id";

// In one statement, however many there are. Each is an array of what the columns have.
#[cfg(feature = "postgres")]
const PUT_ENTRIES_IN_POSTGRES: &str = "\
    INSERT INTO tower_agent_console_entries AS known (run, position, call, entry, texts, whole) \
    SELECT $1, CAST(fields ->> 0 AS BIGINT), fields ->> 1, fields ->> 2, fields ->> 3, fields ->> 4 \
    FROM json_array_elements(CAST($2::TEXT AS JSON)) AS e (fields) \
    ON CONFLICT (run, position) DO UPDATE SET call = excluded.call, entry = excluded.entry, \
    texts = COALESCE(excluded.texts, known.texts), whole = COALESCE(excluded.whole, known.whole)";

// The condition tells its parser that what follows is no join.
#[cfg(feature = "sqlite")]
const PUT_ENTRIES_IN_SQLITE: &str = "\
    INSERT INTO tower_agent_console_entries AS known (run, position, call, entry, texts, whole) \
    SELECT $1, json_extract(value, '$[0]'), json_extract(value, '$[1]'), \
    json_extract(value, '$[2]'), json_extract(value, '$[3]'), json_extract(value, '$[4]') \
    FROM json_each($2) WHERE true \
    ON CONFLICT (run, position) DO UPDATE SET call = excluded.call, entry = excluded.entry, \
    texts = COALESCE(excluded.texts, known.texts), whole = COALESCE(excluded.whole, known.whole)";

const LIST: &str = "\
    SELECT console, number, id, agent, status, owner, begun, heard, summary \
    FROM tower_agent_console_runs";

const ENTRIES: &str = "\
    SELECT e.position, e.call, e.entry, NULL AS texts, NULL AS whole FROM tower_agent_console_runs r \
    JOIN tower_agent_console_entries e ON e.run = r.row_id \
    WHERE r.console = $1 AND r.number = $2 AND e.position >= $3 ORDER BY e.position LIMIT $4";

const ENTRIES_WITH_TEXTS: &str = "\
    SELECT e.position, e.call, e.entry, e.texts, NULL AS whole FROM tower_agent_console_runs r \
    JOIN tower_agent_console_entries e ON e.run = r.row_id \
    WHERE r.console = $1 AND r.number = $2 AND e.position >= $3 ORDER BY e.position LIMIT $4";

const CALLS: &str = "\
    SELECT e.position, e.call, e.entry, NULL AS texts, e.whole FROM tower_agent_console_runs r \
    JOIN tower_agent_console_entries e ON e.run = r.row_id \
    WHERE r.console = $1 AND r.number = $2 AND e.position >= $3 ORDER BY e.position LIMIT $4";

const NUMBERS: &str =
    "SELECT number FROM tower_agent_console_runs WHERE console = $1 AND number >= $2";

#[cfg(feature = "postgres")]
const AUDIT_IN_POSTGRES: &str = "\
    INSERT INTO tower_agent_console_audit (at, console, number, operator, action, about, status) \
    SELECT CAST(fields ->> 0 AS BIGINT), fields ->> 1, CAST(fields ->> 2 AS BIGINT), fields ->> 3, \
    fields ->> 4, fields ->> 5, CAST(fields ->> 6 AS BIGINT) \
    FROM json_array_elements(CAST($1::TEXT AS JSON)) AS e (fields) ON CONFLICT DO NOTHING";

#[cfg(feature = "sqlite")]
const AUDIT_IN_SQLITE: &str = "\
    INSERT INTO tower_agent_console_audit (at, console, number, operator, action, about, status) \
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), \
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'), \
    json_extract(value, '$[6]') FROM json_each($1) WHERE true ON CONFLICT DO NOTHING";

const AUDITED: &str = "\
    SELECT at, console, number, operator, action, about, status FROM tower_agent_console_audit \
    WHERE (at, console, number) < ($1, $2, $3) ORDER BY at DESC, console DESC, number DESC LIMIT $4";

const TRIM_AUDIT: &str = "\
    DELETE FROM tower_agent_console_audit WHERE (at, console, number) IN (\
    SELECT at, console, number FROM tower_agent_console_audit \
    ORDER BY at DESC, console DESC, number DESC LIMIT $1 OFFSET $2)";

/// The number of rows of the audit that go at once.
const TRIMMED: u32 = 10_000;

const TRIM: &str = "\
    DELETE FROM tower_agent_console_runs WHERE heard < $3 OR row_id IN (\
    SELECT row_id FROM (SELECT row_id, ROW_NUMBER() OVER newest AS place, \
    SUM(bytes) OVER newest AS bytes FROM tower_agent_console_runs \
    WINDOW newest AS (ORDER BY begun DESC, console DESC, number DESC)) AS kept \
    WHERE place > 1 AND (place > $1 OR bytes > $2))";

async fn put(database: &dyn Sql, run: &StoredRun) -> Result<bool, StoreError> {
    let StoredRun { head, entries, .. } = run;
    let all: Vec<_> = entries
        .iter()
        .map(|entry| {
            let StoredEntry {
                position,
                call,
                entry,
                texts,
                whole,
            } = entry;
            (position, call, entry, texts, whole)
        })
        .collect();
    let all = serde_json::to_string(&all).map_err(StoreError::data)?;
    let key = key_values(&head.key);
    let [console, number] = key;
    let values = [
        console,
        number,
        (&head.id).into(),
        (&head.agent).into(),
        head.name().into(),
        (&head.status).into(),
        head.user.as_deref().unwrap_or_default().into(),
        head.begun.into(),
        head.heard.into(),
        run.bytes.into(),
        (&head.summary).into(),
    ];
    let put_entries = match database.dialect() {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => PUT_ENTRIES_IN_POSTGRES,
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => PUT_ENTRIES_IN_SQLITE,
    };
    // What was watched is no result: a power cut may lose the last of it.
    let mut tx = database.begin(Wait::Limited, Durability::Later).await?;
    let put_head = if run.is_new {
        // It may be here after all, if nothing was heard of its commit.
        tx.execute(DELETE, &key).await?;
        INSERT
    } else {
        UPDATE
    };
    let rows = tx.fetch_all(put_head, &values).await?;
    for row in &rows {
        let row_id: i64 = row.number("row_id")?;
        tx.execute(put_entries, &[row_id.into(), (&all).into()])
            .await?;
    }
    tx.commit().await?;
    Ok(!rows.is_empty())
}

/// The statement has only the conditions that the query sets, so that the database finds an index
/// for them.
async fn list(database: &dyn Sql, query: &StoredQuery) -> Result<Vec<StoredHead>, StoreError> {
    let mut conditions = Vec::new();
    let mut values: Vec<Value<'_>> = Vec::new();
    if let Some(key) = &query.key {
        values.extend(key_values(key));
        conditions.push("console = $1 AND number = $2".to_owned());
    }
    let names = [
        ("id", &query.id),
        ("status", &query.status),
        ("owner", &query.user),
    ];
    for (column, name) in names {
        if let Some(name) = name {
            values.push(name.into());
            conditions.push(format!("{column} = ${}", values.len()));
        }
    }
    if let Some(agent) = &query.agent {
        values.push(agent.into());
        let number = values.len();
        conditions.push(format!("(agent = ${number} OR name = ${number})"));
    }
    if let Some(call) = &query.call {
        values.push(call.into());
        conditions.push(format!(
            "row_id IN (SELECT run FROM tower_agent_console_entries WHERE call = ${})",
            values.len()
        ));
    }
    if let Some(before) = &query.before {
        values.push(before.begun.into());
        values.extend(key_values(&before.key));
        let last = values.len();
        conditions.push(format!(
            "(begun, console, number) < (${}, ${}, ${last})",
            last - 2,
            last - 1
        ));
    }
    let mut sql = LIST.to_owned();
    for (index, condition) in conditions.iter().enumerate() {
        sql.push_str(if index == 0 { " WHERE " } else { " AND " });
        sql.push_str(condition);
    }
    values.push(query.limit.into());
    sql.push_str(&format!(
        " ORDER BY begun DESC, console DESC, number DESC LIMIT ${}",
        values.len()
    ));
    let rows = database.read_composed(sql, &values).await?;
    rows.iter().map(head).collect()
}

fn head(row: &Row) -> Result<StoredHead, StoreError> {
    let owner = row.text("owner")?;
    Ok(StoredHead {
        key: StoredKey {
            console: row.text("console")?.to_owned(),
            number: row.number("number")?,
        },
        id: row.text("id")?.to_owned(),
        agent: row.text("agent")?.to_owned(),
        status: row.text("status")?.to_owned(),
        begun: row.number("begun")?,
        heard: row.number("heard")?,
        user: (!owner.is_empty()).then(|| owner.to_owned()),
        summary: row.text("summary")?.to_owned(),
    })
}

fn key_values(key: &StoredKey) -> [Value<'_>; 2] {
    [(&key.console).into(), key.number.into()]
}

async fn entries(
    database: &dyn Sql,
    sql: &'static str,
    key: &StoredKey,
    from: u32,
    limit: u32,
) -> Result<Vec<StoredEntry>, StoreError> {
    let [console, number] = key_values(key);
    let values = [console, number, from.into(), limit.into()];
    let rows = database.read(sql, &values).await?;
    let entry = |row: &Row| {
        Ok(StoredEntry {
            position: row.number("position")?,
            entry: row.text("entry")?.to_owned(),
            call: row.optional_text("call")?.map(str::to_owned),
            texts: row.optional_text("texts")?.map(str::to_owned),
            whole: row.optional_text("whole")?.map(str::to_owned),
        })
    };
    rows.iter().map(entry).collect()
}

async fn numbers(database: &dyn Sql, console: &str, from: u64) -> Result<Vec<u64>, StoreError> {
    let rows = database
        .read(NUMBERS, &[console.into(), from.into()])
        .await?;
    rows.iter().map(|row| row.number("number")).collect()
}

async fn audit(database: &dyn Sql, rows: &[StoredAudit]) -> Result<(), StoreError> {
    let rows = rows.iter().map(|row| {
        let StoredKey { console, number } = &row.place.key;
        (
            row.place.begun,
            console,
            number,
            &row.operator,
            &row.action,
            &row.about,
            row.status,
        )
    });
    let rows: Vec<_> = rows.collect();
    let rows = serde_json::to_string(&rows).map_err(StoreError::data)?;
    let sql = match database.dialect() {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => AUDIT_IN_POSTGRES,
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => AUDIT_IN_SQLITE,
    };
    // Unlike what was watched, it is there for good once it was said to be.
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    tx.execute(sql, &[(&rows).into()]).await?;
    tx.commit().await
}

async fn audited(
    database: &dyn Sql,
    before: Option<&StoredPlace>,
    limit: u32,
) -> Result<Vec<StoredAudit>, StoreError> {
    let last = StoredPlace {
        begun: i64::MAX as u64,
        key: StoredKey {
            console: String::new(),
            number: 0,
        },
    };
    let before = before.unwrap_or(&last);
    let [console, number] = key_values(&before.key);
    let values = [before.begun.into(), console, number, limit.into()];
    let rows = database.read(AUDITED, &values).await?;
    let row = |row: &Row| {
        Ok(StoredAudit {
            place: StoredPlace {
                begun: row.number("at")?,
                key: StoredKey {
                    console: row.text("console")?.to_owned(),
                    number: row.number("number")?,
                },
            },
            operator: row.text("operator")?.to_owned(),
            action: row.text("action")?.to_owned(),
            about: row.text("about")?.to_owned(),
            status: row.number("status")?,
        })
    };
    rows.iter().map(row).collect()
}

/// Deletes runs, and what they were from the files of the database.
async fn delete(
    database: &dyn Sql,
    sql: &'static str,
    values: &[Value<'_>],
) -> Result<u64, StoreError> {
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    let deleted = tx.execute(sql, values).await?;
    tx.commit().await?;
    if deleted > 0 {
        database.wipe().await;
    }
    Ok(deleted)
}

/// Returns the error of a console's store. The database's own words stay in the source.
fn failed(error: StoreError) -> Error {
    let message = "the database of the console has failed; this error's source says how";
    Error::new(ErrorKind::Store, message).with_source(error)
}

// A macro, as for the journal: a trait for both databases would be one more public name.
macro_rules! stores_watched_runs {
    ($database:ty) => {
        /// With the feature `console`: the runs that a console has watched.
        #[cfg_attr(docsrs, doc(cfg(feature = "console")))]
        impl RunStore for $database {
            fn put(&self, run: StoredRun) -> BoxFuture<'_, Result<bool, Error>> {
                let database = self.clone();
                let written = to_end(async move { put(&database, &run).await });
                Box::pin(async move { written.await.map_err(failed) })
            }

            fn list<'a>(
                &'a self,
                query: &'a StoredQuery,
            ) -> BoxFuture<'a, Result<Vec<StoredHead>, Error>> {
                Box::pin(async move { list(self, query).await.map_err(failed) })
            }

            fn entries<'a>(
                &'a self,
                key: &'a StoredKey,
                from: u32,
                limit: u32,
                with_texts: bool,
            ) -> BoxFuture<'a, Result<Vec<StoredEntry>, Error>> {
                let sql = if with_texts {
                    ENTRIES_WITH_TEXTS
                } else {
                    ENTRIES
                };
                Box::pin(async move {
                    let read = entries(self, sql, key, from, limit);
                    read.await.map_err(failed)
                })
            }

            fn calls<'a>(
                &'a self,
                key: &'a StoredKey,
                from: u32,
                limit: u32,
            ) -> BoxFuture<'a, Result<Vec<StoredEntry>, Error>> {
                Box::pin(async move {
                    let read = entries(self, CALLS, key, from, limit);
                    read.await.map_err(failed)
                })
            }

            fn numbers<'a>(
                &'a self,
                console: &'a str,
                from: u64,
            ) -> BoxFuture<'a, Result<Vec<u64>, Error>> {
                Box::pin(async move { numbers(self, console, from).await.map_err(failed) })
            }

            fn remove(&self, key: StoredKey) -> BoxFuture<'_, Result<bool, Error>> {
                let database = self.clone();
                let removed =
                    to_end(async move { delete(&database, DELETE, &key_values(&key)).await });
                Box::pin(async move { removed.await.map(|count| count > 0).map_err(failed) })
            }

            fn remove_user(&self, user: String) -> BoxFuture<'_, Result<u64, Error>> {
                let database = self.clone();
                let removed = to_end(async move {
                    // Under the empty name are the runs of all those without one.
                    if user.is_empty() {
                        return Ok(0);
                    }
                    delete(&database, DELETE_OF_USER, &[(&user).into()]).await
                });
                Box::pin(async move { removed.await.map_err(failed) })
            }

            fn audit(&self, rows: Vec<StoredAudit>) -> BoxFuture<'_, Result<(), Error>> {
                let database = self.clone();
                let written = to_end(async move { audit(&database, &rows).await });
                Box::pin(async move { written.await.map_err(failed) })
            }

            fn audited<'a>(
                &'a self,
                before: Option<&'a StoredPlace>,
                limit: u32,
            ) -> BoxFuture<'a, Result<Vec<StoredAudit>, Error>> {
                Box::pin(async move { audited(self, before, limit).await.map_err(failed) })
            }

            fn trim(&self, bounds: StoredBounds) -> BoxFuture<'_, Result<u64, Error>> {
                let database = self.clone();
                let removed = to_end(async move {
                    let rows = [TRIMMED.into(), bounds.audit.into()];
                    delete(&database, TRIM_AUDIT, &rows).await?;
                    let values = [
                        bounds.runs.into(),
                        bounds.bytes.into(),
                        bounds.oldest.into(),
                    ];
                    delete(&database, TRIM, &values).await
                });
                Box::pin(async move { removed.await.map_err(failed) })
            }
        }
    };
}

#[cfg(feature = "sqlite")]
stores_watched_runs!(Sqlite);
#[cfg(feature = "postgres")]
stores_watched_runs!(Postgres);
