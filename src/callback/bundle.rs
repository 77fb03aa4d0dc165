use std::sync::Arc;

use super::hooks::{Hooks, OfHooks};
use super::{BandSemantics, Callback, Callbacks};
use crate::agent::AgentRequest;
use crate::extensions::Extensions;
use crate::model::ModelRequest;
use crate::request::Request;
use crate::tool::ToolRequest;

/// Callbacks for every call of an agent, given as one.
///
/// An agent takes it as its own ([`bundle`](crate::AgentBuilder::bundle)), for itself and all
/// agents that work for it ([`global`](crate::AgentBuilder::global)), or for one run
/// ([`with_callbacks`](AgentRequest::with_callbacks)). Its callbacks follow the
/// [semantics](crate::AgentBuilder::semantics) of that agent. An object that implements [`Hooks`]
/// is one.
///
/// ```
/// use tower_agent::{Bundle, before_model, before_tool};
///
/// let audit = Bundle::new()
///     .on_model(before_model(|_| println!("a model call")))
///     .on_tool(before_tool(|request| println!("a call of {}", request.name())));
/// # drop(audit);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    agent: Callbacks<AgentRequest>,
    model: Callbacks<ModelRequest>,
    tool: Callbacks<ToolRequest>,
}

impl Bundle {
    /// No callbacks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a callback for agent calls.
    #[must_use]
    pub fn on_agent(mut self, callback: impl Callback<AgentRequest>) -> Self {
        self.agent.push(callback);
        self
    }

    /// Adds a callback for model calls.
    #[must_use]
    pub fn on_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.model.push(callback);
        self
    }

    /// Adds a callback for tool calls.
    #[must_use]
    pub fn on_tool(mut self, callback: impl Callback<ToolRequest>) -> Self {
        self.tool.push(callback);
        self
    }

    /// Adds another bundle's callbacks after these.
    #[must_use]
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        let Self { agent, model, tool } = other.into();
        self.agent.append(&agent);
        self.model.append(&model);
        self.tool.append(&tool);
        self
    }

    /// The callbacks for agent calls.
    #[must_use]
    pub fn agent(&self) -> &Callbacks<AgentRequest> {
        &self.agent
    }

    /// The callbacks for model calls.
    #[must_use]
    pub fn model(&self) -> &Callbacks<ModelRequest> {
        &self.model
    }

    /// The callbacks for tool calls.
    #[must_use]
    pub fn tool(&self) -> &Callbacks<ToolRequest> {
        &self.tool
    }

    /// These callbacks after those that a run carries already, or with these semantics.
    pub(crate) fn carry(&self, carried: &mut Extensions, semantics: BandSemantics) {
        carry(&self.agent, carried, semantics);
        carry(&self.model, carried, semantics);
        carry(&self.tool, carried, semantics);
    }
}

fn carry<R: Request>(callbacks: &Callbacks<R>, carried: &mut Extensions, semantics: BandSemantics) {
    if callbacks.is_empty() {
        return;
    }
    let mut all = match carried.get::<Callbacks<R>>() {
        Some(outer) => outer.clone(),
        None => Callbacks::new().with_semantics(semantics),
    };
    all.append(callbacks);
    carried.insert(all);
}

impl<H: Hooks> From<H> for Bundle {
    fn from(hooks: H) -> Self {
        let hooks = Arc::new(hooks);
        Self::new()
            .on_agent(OfHooks(hooks.clone()))
            .on_model(OfHooks(hooks.clone()))
            .on_tool(OfHooks(hooks))
    }
}
