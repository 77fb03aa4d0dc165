//! `Sqlite, Postgres: ConversationStore`

use serde::{Deserialize, Serialize};
use tower_agent_conversations::{
    Append, ConversationInfo, ConversationKey, ConversationQuery, ConversationStore,
    StoredConversation, message_of_entry,
};

#[cfg(feature = "postgres")]
use super::postgres::Postgres;
use super::sql::{Dialect, Durability, Row, Sql, Transaction, Value, Wait};
#[cfg(feature = "sqlite")]
use super::sqlite::Sqlite;
use super::to_end::to_end;
use crate::time::{millis, now, time};
use tower_agent_conversations::StoreError;

/// The position of the head among the entries.
const HEAD: i64 = -1;

/// The number that stands for no time.
const NEVER: i64 = -1;

const LOAD: &str = "\
    SELECT -1 AS position, version, head AS entry FROM tower_agent_conversations \
    WHERE app = $1 AND owner = $2 AND id = $3 AND (expires_at IS NULL OR expires_at > $4) \
    UNION ALL \
    SELECT e.position, e.version, e.entry FROM tower_agent_conversations c \
    JOIN tower_agent_conversation_entries e ON e.conversation = c.row_id \
    WHERE c.app = $1 AND c.owner = $2 AND c.id = $3 \
    AND (c.expires_at IS NULL OR c.expires_at > $4) AND e.replaced_in IS NULL \
    AND e.position >= $5 \
    ORDER BY position";

const DELETE_EXPIRED_ONE: &str = "\
    DELETE FROM tower_agent_conversations \
    WHERE app = $1 AND owner = $2 AND id = $3 AND expires_at <= $4";

/// Counts over all conversations and is never taken back, so that a version is not used twice for a
/// key, also after a delete.
#[cfg(feature = "sqlite")]
const COUNT_VERSION: &str = "UPDATE tower_agent_conversation_versions SET last = last + 1";

macro_rules! create {
    ($version:literal) => {
        concat!(
            "INSERT INTO tower_agent_conversations \
             (app, owner, id, kind, version, head, is_waiting, updated_at, expires_at) \
             VALUES ($1, $2, $3, $4, ",
            $version,
            ", $5, $6, $7, NULLIF($8, -1)) ON CONFLICT DO NOTHING RETURNING row_id, version"
        )
    };
}

macro_rules! update {
    ($version:literal) => {
        concat!(
            "UPDATE tower_agent_conversations SET version = ",
            $version,
            ", kind = $4, head = $5, is_waiting = $6, updated_at = $7, expires_at = NULLIF($8, -1) \
             WHERE app = $1 AND owner = $2 AND id = $3 AND version = $9 \
             AND (expires_at IS NULL OR expires_at > $7) RETURNING row_id, version"
        )
    };
}

const REPLACE: &str = "\
    UPDATE tower_agent_conversation_entries SET replaced_in = $3 \
    WHERE conversation = $1 AND position >= $2 AND replaced_in IS NULL";

// In one statement, however many there are: a server answers each of them.
#[cfg(feature = "postgres")]
const INSERT_IN_POSTGRES: &str = "\
    INSERT INTO tower_agent_conversation_entries (conversation, position, version, entry) \
    SELECT $1, $2 + e.number - 1, $3, e.entry \
    FROM json_array_elements_text(CAST($4::TEXT AS JSON)) WITH ORDINALITY AS e (entry, number) \
    WHERE $2 = 0 OR EXISTS (SELECT 1 FROM tower_agent_conversation_entries \
    WHERE conversation = $1 AND position = $2 - 1 AND replaced_in IS NULL)";

#[cfg(feature = "sqlite")]
const INSERT_IN_SQLITE: &str = "\
    INSERT INTO tower_agent_conversation_entries (conversation, position, version, entry) \
    SELECT $1, $2 + key, $3, value FROM json_each($4) \
    WHERE $2 = 0 OR EXISTS (SELECT 1 FROM tower_agent_conversation_entries \
    WHERE conversation = $1 AND position = $2 - 1 AND replaced_in IS NULL)";

const DELETE: &str = "\
    DELETE FROM tower_agent_conversations WHERE app = $1 AND owner = $2 AND id = $3 \
    RETURNING expires_at";

const DELETE_EXPIRED: &str = "DELETE FROM tower_agent_conversations WHERE expires_at <= $1";

const LIST: &str = "\
    SELECT app, owner, id, kind, version, updated_at, is_waiting, expires_at \
    FROM tower_agent_conversations WHERE (expires_at IS NULL OR expires_at > $1)";

const FIND: &str = "\
    SELECT row_id, version FROM tower_agent_conversations \
    WHERE app = $1 AND owner = $2 AND id = $3";

const ENTRIES_AT: &str = "\
    SELECT c.kind, e.position, e.version, e.entry FROM tower_agent_conversation_entries e \
    JOIN tower_agent_conversations c ON c.row_id = e.conversation \
    WHERE e.conversation = $1 AND e.version <= $2 AND e.position >= $3 \
    AND (e.replaced_in IS NULL OR e.replaced_in > $2) ORDER BY e.position";

/// A version of a conversation, whose entries do not change whatever the conversation does later.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConversationVersion {
    row_id: i64,
    version: i64,
}

impl ConversationVersion {
    /// Returns the version that is stored now.
    pub(crate) async fn find(
        database: &dyn Sql,
        key: &ConversationKey,
    ) -> Result<Option<Self>, StoreError> {
        let Some(row) = database.read(FIND, &key_values(key)).await?.pop() else {
            return Ok(None);
        };
        Ok(Some(Self {
            row_id: row.number("row_id")?,
            version: row.number("version")?,
        }))
    }

    /// Returns the messages of its entries.
    pub(crate) async fn messages(
        self,
        database: &dyn Sql,
    ) -> Result<Vec<EntryMessage>, StoreError> {
        let rows = database.read(ENTRIES_AT, &self.values(0)).await?;
        messages(&rows)
    }

    /// Returns the messages after an entry of an earlier version, or `None` if this version does
    /// not have that entry and all before it.
    pub(crate) async fn messages_after(
        self,
        database: &dyn Sql,
        earlier: Self,
        position: i64,
    ) -> Result<Option<Vec<EntryMessage>>, StoreError> {
        if earlier.row_id != self.row_id {
            return Ok(None);
        }
        let rows = database.read(ENTRIES_AT, &self.values(position)).await?;
        // Entries are only replaced together with all that follow, so the ones before are those of
        // the earlier version if this one is.
        let Some((last, new)) = rows.split_first() else {
            return Ok(None);
        };
        let is_known = last.number::<i64>("position")? == position
            && last.number::<i64>("version")? <= earlier.version;
        if !is_known {
            return Ok(None);
        }
        messages(new).map(Some)
    }

    /// Returns the messages as [`messages`](Self::messages) does, in a transaction.
    pub(crate) async fn messages_in(
        self,
        tx: &mut dyn Transaction,
    ) -> Result<Vec<EntryMessage>, StoreError> {
        let rows = tx.fetch_all(ENTRIES_AT, &self.values(0)).await?;
        messages(&rows)
    }

    fn values(self, from: i64) -> [Value<'static>; 3] {
        [self.row_id.into(), self.version.into(), from.into()]
    }
}

/// The message of an entry.
pub(crate) struct EntryMessage {
    /// The position of the entry.
    pub(crate) position: i64,
    /// The message, as JSON.
    pub(crate) text: String,
}

/// Returns the messages of these entries.
fn messages(rows: &[Row]) -> Result<Vec<EntryMessage>, StoreError> {
    let mut messages = Vec::with_capacity(rows.len());
    for row in rows {
        if let Some(text) = message_of_entry(row.text("kind")?, row.text("entry")?)? {
            let position = row.number("position")?;
            messages.push(EntryMessage { position, text });
        }
    }
    Ok(messages)
}

/// The statements of one database, where they differ.
struct Statements {
    count_version: Option<&'static str>,
    create: &'static str,
    update: &'static str,
    insert: &'static str,
}

impl Statements {
    fn of(dialect: Dialect) -> Self {
        match dialect {
            #[cfg(feature = "postgres")]
            Dialect::Postgres => Self {
                count_version: None,
                create: create!("nextval('tower_agent_conversation_versions')"),
                update: update!("nextval('tower_agent_conversation_versions')"),
                insert: INSERT_IN_POSTGRES,
            },
            #[cfg(feature = "sqlite")]
            Dialect::Sqlite => Self {
                count_version: Some(COUNT_VERSION),
                create: create!("(SELECT last FROM tower_agent_conversation_versions)"),
                update: update!("(SELECT last FROM tower_agent_conversation_versions)"),
                insert: INSERT_IN_SQLITE,
            },
        }
    }
}

fn key_values(key: &ConversationKey) -> [Value<'_>; 3] {
    [(&*key.app).into(), (&*key.user).into(), (&*key.id).into()]
}

async fn load(
    database: &dyn Sql,
    key: &ConversationKey,
    from: usize,
) -> Result<Option<StoredConversation>, StoreError> {
    key.check()?;
    let [app, user, id] = key_values(key);
    let first = i64::try_from(from).unwrap_or(i64::MAX);
    let values = [app, user, id, now().into(), first.into()];
    let mut rows = database.read(LOAD, &values).await?.into_iter();
    let Some(head) = rows.next() else {
        return Ok(None);
    };
    if head.number::<i64>("position")? != HEAD {
        return Ok(None);
    }
    let mut entries = Vec::with_capacity(rows.len());
    for (row, position) in rows.zip(first..) {
        // A conversation with a gap must not be continued.
        if row.number::<i64>("position")? != position {
            return Err(StoreError::data("an entry of the conversation is missing"));
        }
        entries.push(row.text("entry")?.to_owned());
    }
    let stored = StoredConversation::new(head.number("version")?, head.text("entry")?);
    Ok(Some(stored.entries(entries)))
}

async fn append(
    database: &dyn Sql,
    key: &ConversationKey,
    expected: u64,
    append: Append,
) -> Result<u64, StoreError> {
    let [app, user, id] = key_values(key);
    let now = now();
    let from = i64::try_from(append.from).unwrap_or(i64::MAX);
    let statements = Statements::of(database.dialect());
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    if let Some(count) = statements.count_version {
        tx.execute(count, &[]).await?;
    }
    // An expired conversation does not exist, but its row would be in the way of the new one.
    if expected == 0 {
        let values = [app, user, id, now.into()];
        tx.execute(DELETE_EXPIRED_ONE, &values).await?;
    }
    let is_waiting = i64::from(append.is_waiting);
    let mut values = vec![
        app,
        user,
        id,
        (&*append.kind).into(),
        (&append.head).into(),
        is_waiting.into(),
        now.into(),
        append.expires_at.map_or(NEVER, millis).into(),
    ];
    let write = if expected == 0 {
        statements.create
    } else {
        values.push(expected.into());
        statements.update
    };
    let Some(row) = tx.fetch_all(write, &values).await?.pop() else {
        return Err(StoreError::Conflict { expected });
    };
    let row_id: i64 = row.number("row_id")?;
    let version: u64 = row.number("version")?;
    // The entries from `from` on make room for the new ones.
    if expected != 0 {
        let values = [row_id.into(), from.into(), version.into()];
        tx.execute(REPLACE, &values).await?;
    }
    if !append.entries.is_empty() {
        let entries = serde_json::to_string(&append.entries).map_err(StoreError::data)?;
        let values = [
            row_id.into(),
            from.into(),
            version.into(),
            (&entries).into(),
        ];
        let inserted = tx.execute(statements.insert, &values).await?;
        // None are if one before them is missing.
        if inserted != append.entries.len() as u64 {
            let message = format!("there is no entry before position {}", append.from);
            return Err(StoreError::data(message));
        }
    }
    tx.commit().await?;
    Ok(version)
}

/// The statement has only the conditions that the query sets, so that the database finds an index
/// for them.
async fn list(
    database: &dyn Sql,
    query: &ConversationQuery,
) -> Result<Vec<ConversationInfo>, StoreError> {
    query.check()?;
    let mut sql = LIST.to_owned();
    let mut values: Vec<Value<'_>> = vec![now().into()];
    let names = [
        ("app", &query.app),
        ("owner", &query.user),
        ("kind", &query.kind),
    ];
    for (column, name) in names {
        if let Some(name) = name {
            values.push((&**name).into());
            sql.push_str(&format!(" AND {column} = ${}", values.len()));
        }
    }
    if query.is_waiting {
        sql.push_str(" AND is_waiting = 1");
    }
    if let Some(after) = &query.after {
        let first = values.len() + 1;
        values.push(millis(after.updated_at).into());
        values.extend(key_values(&after.key));
        sql.push_str(&format!(
            " AND (updated_at, app, owner, id) < (${first}, ${}, ${}, ${})",
            first + 1,
            first + 2,
            first + 3
        ));
    }
    values.push(query.limit.into());
    sql.push_str(&format!(
        " ORDER BY updated_at DESC, app DESC, owner DESC, id DESC LIMIT ${}",
        values.len()
    ));
    let rows = database.read_composed(sql, &values).await?;
    rows.iter().map(info).collect()
}

fn info(row: &Row) -> Result<ConversationInfo, StoreError> {
    let key = ConversationKey::new(row.text("app")?, row.text("owner")?, row.text("id")?);
    let updated_at = time(row.number("updated_at")?);
    let is_waiting: i64 = row.number("is_waiting")?;
    let expires_at = row.optional_number("expires_at")?;
    Ok(
        ConversationInfo::new(key, row.number("version")?, updated_at)
            .kind(row.text("kind")?)
            .waiting(is_waiting == 1)
            .expires_at(expires_at.map(time)),
    )
}

async fn delete(database: &dyn Sql, key: &ConversationKey) -> Result<bool, StoreError> {
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    let deleted = tx.fetch_all(DELETE, &key_values(key)).await?.pop();
    tx.commit().await?;
    database.wipe().await;
    let Some(row) = deleted else {
        return Ok(false);
    };
    let expires_at: Option<i64> = row.optional_number("expires_at")?;
    Ok(expires_at.is_none_or(|at| at > now()))
}

async fn delete_expired(database: &dyn Sql) -> Result<u64, StoreError> {
    let mut tx = database.begin(Wait::Limited, Durability::AtCommit).await?;
    let deleted = tx.execute(DELETE_EXPIRED, &[now().into()]).await?;
    tx.commit().await?;
    if deleted > 0 {
        database.wipe().await;
    }
    Ok(deleted)
}

// A macro, as for the journal: a trait for both databases would be one more public name.
macro_rules! stores_conversations {
    ($database:ty) => {
        impl ConversationStore for $database {
            async fn load(
                &self,
                key: &ConversationKey,
                from: usize,
            ) -> Result<Option<StoredConversation>, StoreError> {
                load(self, key, from).await
            }

            async fn append(
                &self,
                key: &ConversationKey,
                expected: u64,
                write: Append,
            ) -> Result<u64, StoreError> {
                key.check()?;
                let database = self.clone();
                let key = key.clone();
                to_end(async move { append(&database, &key, expected, write).await }).await
            }

            async fn list(
                &self,
                query: &ConversationQuery,
            ) -> Result<Vec<ConversationInfo>, StoreError> {
                list(self, query).await
            }

            async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
                key.check()?;
                let database = self.clone();
                let key = key.clone();
                to_end(async move { delete(&database, &key).await }).await
            }

            async fn delete_expired(&self) -> Result<u64, StoreError> {
                let database = self.clone();
                to_end(async move { delete_expired(&database).await }).await
            }
        }
    };
}

#[cfg(feature = "sqlite")]
stores_conversations!(Sqlite);
#[cfg(feature = "postgres")]
stores_conversations!(Postgres);
