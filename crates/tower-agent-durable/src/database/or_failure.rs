use tower_agent_conversations::StoreError;

/// The error of a database as one of this crate. Not a `From`, which would make the library that
/// talks to the database part of the interface.
pub(crate) trait OrFailure<T> {
    fn or_failure(self) -> Result<T, StoreError>;
}

impl<T> OrFailure<T> for Result<T, sqlx::Error> {
    fn or_failure(self) -> Result<T, StoreError> {
        self.map_err(failure)
    }
}

pub(super) fn failure(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::PoolTimedOut => StoreError::database(
            "waited too long for a connection: the server cannot be reached, or all are in use",
        ),
        error => StoreError::database(error),
    }
}

/// Returns whether an error says that others use the database, so that nothing was begun.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::PoolTimedOut) || is_locked(error)
}

/// Returns whether another process writes: SQLITE_BUSY.
pub(super) fn is_locked(error: &sqlx::Error) -> bool {
    let error = error.as_database_error();
    error
        .and_then(|error| error.code())
        .is_some_and(|code| code == "5")
}
