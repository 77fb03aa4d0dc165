//! The checkpoint of a failed run, with its error.

use std::sync::Arc;

use super::error::Error;
use crate::conversation::Checkpoint;

impl Error {
    /// Returns the checkpoint of the failed run: the conversation with every tool result so far. A
    /// caller can [resume](crate::AgentRequest::resume) from it.
    ///
    /// Errors returned by an [`Agent`](crate::Agent) have one. A layer around the agent that
    /// creates its own error, such as a timeout, loses it;
    /// [`RunStream::checkpoint`](crate::RunStream::checkpoint) still has it. Neither `Display` nor
    /// `Debug` shows it.
    ///
    /// ```
    /// use serde_json::{Value, json};
    /// use tower_agent::{Agent, AgentRequest, Error, ErrorKind, Tool};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let model = ScriptedModel::new([
    ///     Turn::tool("pay", json!({})),
    ///     Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
    ///     Turn::from_text("Paid."),
    /// ]);
    /// let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    /// let agent = Agent::builder(model).tool(pay).build()?;
    ///
    /// let error = agent.run("Pay the bill.").await.unwrap_err();
    /// let Some(checkpoint) = error.checkpoint() else { panic!("a run has failed") };
    /// let response = agent.run(AgentRequest::resume(checkpoint.clone())).await?;
    /// assert_eq!((response.text(), response.new_messages().len()), ("Paid.".into(), 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        self.0.checkpoint.as_deref()
    }

    /// Sets the checkpoint of the failed run, in a layer around an agent that creates an error of
    /// its own.
    #[must_use]
    pub fn with_checkpoint(self, checkpoint: Checkpoint) -> Self {
        self.update(|e| e.checkpoint = Some(Arc::new(checkpoint)))
    }

    /// Removes the checkpoint, before the error is shown to a consumer.
    pub(crate) fn without_checkpoint(self) -> Self {
        // Most errors have none, and a change copies the fields of one that is shared.
        if self.0.checkpoint.is_none() {
            return self;
        }
        self.update(|e| e.checkpoint = None)
    }
}
