use super::sql::{Dialect, Durability, Sql, Wait};
use tower_agent_conversations::StoreError;

/// The migrations of one database, in order: a released one never changes. The first is version 1.
pub(super) type Migrations = &'static [&'static str];

#[cfg(feature = "sqlite")]
pub(super) const SQLITE: Migrations = &[
    include_str!("../../migrations/sqlite/0001_conversations.sql"),
    include_str!("../../migrations/sqlite/0002_runs.sql"),
    // Without the feature as well: programs with it and without it may share a database.
    include_str!("../../migrations/sqlite/0003_console.sql"),
];

#[cfg(feature = "postgres")]
pub(super) const POSTGRES: Migrations = &[
    include_str!("../../migrations/postgres/0001_conversations.sql"),
    include_str!("../../migrations/postgres/0002_runs.sql"),
    // Without the feature as well: programs with it and without it may share a database.
    include_str!("../../migrations/postgres/0003_rates.sql"),
    include_str!("../../migrations/postgres/0004_console.sql"),
];

// Not the table of sqlx, which the program may use for its own migrations.
const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS tower_agent_migrations (version BIGINT PRIMARY KEY)";

/// Keeps other processes out until the transaction ends; SQLite's transactions do so by themselves.
/// Not sqlx's migrator, whose lock belongs to a connection: behind a pooler it would be taken in
/// one connection of the server, and given back in another.
#[cfg(feature = "postgres")]
const LOCK: &str = "SELECT pg_advisory_xact_lock(8387236823645254770)";

/// Creates the tables that are missing.
pub(super) async fn migrate(database: &dyn Sql, migrations: Migrations) -> Result<(), StoreError> {
    let mut transaction = database.begin(Wait::Limited, Durability::AtCommit).await?;
    match database.dialect() {
        #[cfg(feature = "postgres")]
        Dialect::Postgres => transaction.run_script(LOCK).await?,
        #[cfg(feature = "sqlite")]
        Dialect::Sqlite => {}
    }
    transaction.run_script(CREATE).await?;
    let sql = "SELECT COALESCE(MAX(version), 0) AS version FROM tower_agent_migrations";
    let mut found = 0;
    for row in transaction.fetch_all(sql, &[]).await? {
        found = row.number("version")?;
    }
    let mut version: u32 = 0;
    for script in migrations {
        version += 1;
        if version > found {
            transaction.run_script(script).await?;
            let sql = "INSERT INTO tower_agent_migrations (version) VALUES ($1)";
            transaction.execute(sql, &[version.into()]).await?;
        }
    }
    if found > version {
        return Err(StoreError::NewerFormat {
            found,
            newest: version,
        });
    }
    transaction.commit().await
}
