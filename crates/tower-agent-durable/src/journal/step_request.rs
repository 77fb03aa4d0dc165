use std::future::Future;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tower_agent::call::Extensions;
use tower_agent::{ModelRequest, ModelResponse, Request, Result, RunContext, ToolRequest};

use super::{Fingerprint, StepKind};
use crate::StoreError;

/// A call that is a step.
pub(super) trait StepRequest: Request<Response: Serialize + DeserializeOwned> {
    fn kind(&self) -> StepKind;

    fn fingerprint(&self) -> Result<Fingerprint, StoreError>;

    /// Whether the step may be made again if it did not finish.
    fn may_repeat(&self) -> bool;

    fn in_context(self, context: RunContext) -> Self;

    fn data(&mut self) -> &mut Extensions;

    /// Shows a response that was given before.
    fn show(&self, response: Self::Response)
    -> impl Future<Output = Result<Self::Response>> + Send;

    /// The question about a step that was not finished.
    fn subject(&self) -> serde_json::Value;
}

impl StepRequest for ModelRequest {
    fn kind(&self) -> StepKind {
        StepKind::Model
    }

    fn fingerprint(&self) -> Result<Fingerprint, StoreError> {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add("instructions", &self.instructions())?;
        for (index, message) in self.messages().iter().enumerate() {
            fingerprint.add(format!("messages[{index}]"), message)?;
        }
        for tool in self.tools() {
            fingerprint.add(format!("tool {}", tool.name()), tool)?;
        }
        fingerprint.add("settings", self.settings())?;
        Ok(fingerprint)
    }

    fn may_repeat(&self) -> bool {
        true
    }

    fn in_context(self, context: RunContext) -> Self {
        self.with_context(context)
    }

    fn data(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }

    async fn show(&self, response: ModelResponse) -> Result<ModelResponse> {
        response.streamed_to(self.delta_sender()).await
    }

    fn subject(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

impl StepRequest for ToolRequest {
    fn kind(&self) -> StepKind {
        StepKind::Tool(self.name().into())
    }

    fn fingerprint(&self) -> Result<Fingerprint, StoreError> {
        let mut fingerprint = Fingerprint::default();
        fingerprint.add("tool", &self.name())?;
        fingerprint.add("id", &self.id())?;
        fingerprint.add("arguments", self.arguments())?;
        Ok(fingerprint)
    }

    /// An agent has steps of its own, which are not made again.
    fn may_repeat(&self) -> bool {
        self.is_repeatable() || self.declaration().is_some_and(|tool| tool.is_agent())
    }

    fn in_context(self, context: RunContext) -> Self {
        self.with_context(context)
    }

    fn data(&mut self) -> &mut Extensions {
        self.extensions_mut()
    }

    async fn show(&self, response: Self::Response) -> Result<Self::Response> {
        Ok(response)
    }

    fn subject(&self) -> serde_json::Value {
        serde_json::json!({
            "tool": self.name(),
            "arguments": self.arguments(),
            "idempotency_key": self.idempotency_key(),
        })
    }
}
