use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};
use tower_agent::error::{Error, Result};
use tower_agent::{AgentResponse, Checkpoint};

use super::writer::Writer;
use crate::error::StoreError;

/// The source of the error of a run that has ended, and whose session could not be stored.
///
/// The session is as it was at the start of the run, and no other run gets it until the lease has
/// ended. Either [store](Self::store) it later, or keep the error's
/// [checkpoint](tower_agent::Error::checkpoint).
///
/// ```
/// use tower_agent::Error;
/// use tower_agent_conversations::NotStored;
///
/// async fn again(error: &Error) -> Option<String> {
///     let unstored = error.downcast_ref::<NotStored>()?;
///     unstored.store().await.ok()?;
///     Some(unstored.result().as_ref().ok()?.text())
/// }
/// ```
#[derive(Clone)]
pub struct NotStored {
    result: Box<Result<AgentResponse>>,
    error: StoreError,
    unstored: Arc<Unstored>,
}

impl NotStored {
    pub(super) fn new(
        result: Result<AgentResponse>,
        error: StoreError,
        unstored: Unstored,
    ) -> Self {
        Self {
            result: Box::new(result),
            error,
            unstored: Arc::new(unstored),
        }
    }

    /// Returns what the run returned.
    pub fn result(&self) -> &Result<AgentResponse> {
        &self.result
    }

    /// Returns why the session was not stored.
    #[must_use]
    pub fn error(&self) -> &StoreError {
        &self.error
    }

    /// Stores the session. Has no effect if it was stored in the meantime.
    ///
    /// # Errors
    ///
    /// Fails as before, and with [`Conflict`](StoreError::Conflict) if another run got the session.
    pub async fn store(&self) -> Result<(), StoreError> {
        let Unstored {
            writer,
            checkpoint,
            state,
        } = &*self.unstored;
        writer.finish(checkpoint, state.clone()).await
    }
}

/// The session of a run that has ended, as it was to be written.
#[derive(Clone)]
pub(super) struct Unstored {
    pub(super) writer: Writer,
    pub(super) checkpoint: Checkpoint,
    pub(super) state: Map<String, Value>,
}

impl std::error::Error for NotStored {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl fmt::Display for NotStored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = if self.result.is_ok() {
            "has a response"
        } else {
            "has failed"
        };
        write!(
            f,
            "the run {ended}, but its session was not stored: {}",
            self.error
        )
    }
}

impl fmt::Debug for NotStored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotStored")
            .field("error", &self.error)
            .finish_non_exhaustive()
    }
}

impl From<NotStored> for Error {
    fn from(unstored: NotStored) -> Self {
        let kind = Error::from(unstored.error.clone()).kind();
        Self::new(kind, unstored.to_string()).with_source(unstored)
    }
}
