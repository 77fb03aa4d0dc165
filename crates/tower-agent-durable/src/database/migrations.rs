use sqlx::SqlSafeStr;
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};

use tower_agent_conversations::StoreError;

/// The migrations of one database, in order: a released one never changes.
pub(super) type Migrations = &'static [(i64, &'static str, &'static str)];

#[cfg(feature = "sqlite")]
pub(super) const SQLITE: Migrations = &[
    (
        1,
        "conversations",
        include_str!("../../migrations/sqlite/0001_conversations.sql"),
    ),
    (
        2,
        "runs",
        include_str!("../../migrations/sqlite/0002_runs.sql"),
    ),
];

#[cfg(feature = "postgres")]
pub(super) const POSTGRES: Migrations = &[
    (
        1,
        "conversations",
        include_str!("../../migrations/postgres/0001_conversations.sql"),
    ),
    (
        2,
        "runs",
        include_str!("../../migrations/postgres/0002_runs.sql"),
    ),
    // Without the feature as well: programs with it and without it may share a database.
    (
        3,
        "rates",
        include_str!("../../migrations/postgres/0003_rates.sql"),
    ),
];

/// Returns the migrator, whose table is not that of the program's own migrations.
pub(super) fn migrator(migrations: Migrations) -> Migrator {
    let migrations = migrations.iter().map(|(version, name, sql)| {
        let kind = MigrationType::Simple;
        Migration::new(*version, (*name).into(), kind, (*sql).into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    // sqlx's own table would mix these versions with those of the program, which may use it as
    // well.
    migrator.dangerous_set_table_name("tower_agent_migrations");
    migrator
}

/// Returns the error of a migration.
pub(super) fn failed(error: MigrateError, migrations: Migrations) -> StoreError {
    match error {
        MigrateError::VersionMissing(found) => StoreError::NewerFormat {
            found: u32::try_from(found).unwrap_or(u32::MAX),
            newest: u32::try_from(migrations.len()).unwrap_or(u32::MAX),
        },
        MigrateError::Execute(error) => StoreError::database(error),
        error => StoreError::database(error),
    }
}
