use std::future::Future;

use tokio::runtime::Handle;

use tower_agent_conversations::StoreError;

/// Runs a transaction to its end, even if the caller is no longer polled, as for a run whose client
/// does not read. Otherwise every other writer would wait for its connection and its locks.
pub(crate) async fn to_end<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StoreError> + Send + 'static,
{
    let Ok(runtime) = Handle::try_current() else {
        return Err(StoreError::database("a database needs a Tokio runtime").into());
    };
    runtime
        .spawn(work)
        .await
        .unwrap_or_else(|error| Err(StoreError::database(error).into()))
}
