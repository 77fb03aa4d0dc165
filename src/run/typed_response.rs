use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::response::AgentResponse;
use crate::error::Result;
use crate::stream::EndReason;

/// The response of a run that was asked for a `T`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TypedResponse<T> {
    /// The answer. `None` if the run was interrupted, or ended before it had an answer; see
    /// [`end_reason`](AgentResponse::end_reason).
    pub value: Option<T>,
    /// The response, with the conversation, the usage and the interrupts.
    pub response: AgentResponse,
}

impl<T: DeserializeOwned + JsonSchema> TypedResponse<T> {
    /// Parses the answer of a response.
    ///
    /// # Errors
    ///
    /// Fails as [`AgentResponse::parse`] does if the run has completed.
    pub fn new(response: AgentResponse) -> Result<Self> {
        // An interrupted run has no answer yet, and one that was ended early may have none: only a
        // completed run must have one.
        let value = match (response.parse(), response.end_reason()) {
            (Err(error), EndReason::Completed | EndReason::NoAnswer(_)) => return Err(error),
            (parsed, _) => parsed.ok(),
        };
        Ok(Self { value, response })
    }

    /// Returns the answer.
    ///
    /// # Errors
    ///
    /// Fails if there is none, as [`AgentResponse::parse`] does.
    pub fn into_value(self) -> Result<T> {
        match self.value {
            Some(value) => Ok(value),
            None => self.response.parse(),
        }
    }
}
