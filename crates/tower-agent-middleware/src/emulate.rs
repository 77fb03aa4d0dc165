//! Lets a model answer in place of tools that do not exist yet, or that a test must not call.
//!
//! ```text
//! Emulate: Callback<ToolRequest>
//! ```
//!
//! ```
//! use serde_json::json;
//! use tower_agent::{Agent, Tool};
//! use tower_agent_middleware::emulate::Emulate;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let model = ScriptedModel::new([
//!     Turn::tool("weather", json!({ "value": "Oslo" })),
//!     Turn::from_text("It snows."),
//! ]);
//! let actor = ScriptedModel::new([Turn::from_text("snow, -4 degrees")]);
//! let agent = Agent::builder(model)
//!     .tool(Tool::function("weather", "The weather.", |_: String| -> &str { unreachable!() }))
//!     .on_tool(Emulate::new(actor.clone()).only(["weather"]))
//!     .build()?;
//!
//! assert_eq!(agent.run("How is the weather in Oslo?").await?.text(), "It snows.");
//! assert_eq!(actor.requests().len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! The emulated call has a result like any other. Guards that were registered before it see the
//! call, and callbacks after it, layers inside it and the tool do not. The model that answers is
//! called by an agent in the call, so its tokens are part of the run's.

use std::fmt;
use std::sync::Arc;

use tower_agent::call::Request;
use tower_agent::callback::{Action, Callback};
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::message::Message;
use tower_agent::model::{BoxModel, ModelService};
use tower_agent::tool::{ToolRequest, ToolResponse};
use tower_agent::{Agent, AgentRequest};

/// Answers tool calls by a model. See the [module](self).
#[derive(Clone)]
#[must_use = "a callback does nothing until it is registered"]
pub struct Emulate {
    model: BoxModel,
    only: Option<Arc<[Arc<str>]>>,
}

impl Emulate {
    /// Lets this model answer every tool call.
    pub fn new(model: impl ModelService) -> Self {
        Self {
            model: BoxModel::new(model),
            only: None,
        }
    }

    /// Emulates these tools, and no others. [`build`](tower_agent::AgentBuilder::build) fails if
    /// the agent lacks one of them.
    pub fn only(mut self, names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.only = Some(names.into_iter().map(Into::into).collect());
        self
    }

    fn emulates(&self, tool: &str) -> bool {
        let only = self.only.as_deref();
        only.is_none_or(|names| names.iter().any(|name| **name == *tool))
    }
}

impl Callback<ToolRequest> for Emulate {
    async fn before(&self, request: &mut ToolRequest) -> Result<Action<ToolResponse>> {
        // A tool that does not exist is the model's mistake, which it must read of.
        let Some(declaration) = request.declaration() else {
            return Ok(Action::Continue);
        };
        if !self.emulates(request.name()) {
            return Ok(Action::Continue);
        }
        let question = format!(
            "You stand in for a tool. Answer a call of it with a plausible result, and with nothing \
             else.\nTool: {}\nDescription: {}\nArguments: {}",
            request.name(),
            declaration.description(),
            request.arguments()
        );
        let actor = Agent::builder(self.model.clone())
            .name("emulated_tool")
            .build()
            .map_err(|error| Error::new(ErrorKind::InvalidRequest, error.to_string()))?;
        let question = AgentRequest::conversation([Message::user(question)])
            .with_context(request.context().clone());
        let response = actor.run(question).await?;
        if !response.interrupts().is_empty() {
            return Err(Error::interrupt_all(response.interrupts().iter().cloned()));
        }
        Ok(Action::Respond(ToolResponse::new(response.text())))
    }

    fn named_tools(&self) -> Vec<Arc<str>> {
        self.only.as_deref().unwrap_or_default().to_vec()
    }
}

impl fmt::Debug for Emulate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emulate")
            .field("only", &self.only)
            .finish_non_exhaustive()
    }
}
