use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tower_agent::{Error, RunContext};

/// Chooses the text that a client reads of an error. The error itself goes to the log.
#[derive(Clone, Default)]
pub(super) struct FailureMessage(Option<Arc<MessageOf>>);

type MessageOf = dyn Fn(&Error, &RunContext) -> Option<String> + Send + Sync;

impl FailureMessage {
    pub(super) fn new(
        of: impl Fn(&Error, &RunContext) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(of)))
    }

    /// Returns the text for the client, and logs the error under the id of the run.
    pub(super) fn of(&self, error: &Error, run: &RunContext) -> String {
        let run_id = run.run_id();
        // By `Debug`, which escapes what a tool has put into the text.
        tracing::warn!(run_id, ?error, "the client is not shown this error");
        let own = self.0.as_ref().and_then(|message| {
            // A panic must neither end the connection nor reveal the error.
            catch_unwind(AssertUnwindSafe(|| message(error, run))).unwrap_or_default()
        });
        // Written for a model to read.
        let own = own.or_else(|| error.model_message().map(str::to_owned));
        own.unwrap_or_else(|| format!("Something went wrong on the server (error {run_id})."))
    }
}

impl fmt::Debug for FailureMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailureMessage").finish_non_exhaustive()
    }
}
