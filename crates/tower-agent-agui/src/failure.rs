//! The text that a client reads of an error.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::client_tool;
use tower_agent::context::RunContext;
use tower_agent::error::Error;
use tower_agent::tool::InvalidTool;

/// Chooses the text that the client reads of an error. The error itself goes to the log.
#[derive(Clone, Default)]
pub(crate) struct FailureMessage(Option<Arc<MessageOf>>);

type MessageOf = dyn Fn(&Error, &RunContext) -> Option<String> + Send + Sync;

impl FailureMessage {
    pub(crate) fn new(
        of: impl Fn(&Error, &RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(of)))
    }

    /// Returns the text for the client, and logs the error under the id of the run.
    pub(crate) fn of(&self, error: &Error, run: &RunContext) -> String {
        let run_id = run.run_id();
        // By `Debug`, which escapes what a provider or a tool has put into the text.
        tracing::warn!(run_id, ?error, "the client is not shown this error");
        let own = self.0.as_ref().and_then(|message| {
            // A panic must neither cut the connection nor reveal the error.
            catch_unwind(AssertUnwindSafe(|| message(error, run))).unwrap_or_default()
        });
        own.unwrap_or_else(|| match error.downcast_ref::<InvalidTool>() {
            // Its agent is inside layers, so that nobody could tell before the run.
            Some(InvalidTool::Duplicate(name)) => client_tool::taken(name),
            _ => format!("Something went wrong on the server (error {run_id})."),
        })
    }
}

impl fmt::Debug for FailureMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureMessage").finish_non_exhaustive()
    }
}
