use super::{Callback, CallbackSemantics, Callbacks, NamedTool};
use crate::call::Extensions;
use crate::call::Request;
use crate::context::Carried;
use crate::model::ModelRequest;
use crate::run::AgentRequest;
use crate::tool::ToolRequest;

/// Callbacks for every call of an agent, given as one.
///
/// An agent takes it as its own ([`bundle`](crate::AgentBuilder::bundle)), for itself and all
/// agents that work for it ([`global`](crate::AgentBuilder::global)), or for one run
/// ([`with_callbacks`](AgentRequest::with_callbacks)). Its callbacks follow the
/// [semantics](crate::AgentBuilder::semantics) of that agent: the one that they are registered
/// with, or the one that is called; also in agents further down that follow others. An object that
/// implements [`Hooks`](crate::compat::Hooks) is a bundle.
///
/// ```
/// use tower_agent::callback::{Bundle, before_model, before_tool};
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
    inmost_model: Callbacks<ModelRequest>,
    inmost_tool: Callbacks<ToolRequest>,
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

    /// Adds a callback around the model itself: inside every callback and layer of an agent,
    /// wherever the bundle is registered. Its `after` is the first to see what the model said, and
    /// its `before` the last to see what the model is sent.
    #[must_use]
    pub fn inmost_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.inmost_model.push(callback);
        self
    }

    /// Adds a callback around the tools themselves: inside every callback and layer of an agent,
    /// wherever the bundle is registered.
    #[must_use]
    pub fn inmost_tool(mut self, callback: impl Callback<ToolRequest>) -> Self {
        self.inmost_tool.push(callback);
        self
    }

    /// Adds another bundle's callbacks after these. Calls that these say anything of keep their
    /// semantics; for the others they are the other bundle's.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        Self {
            agent: self.agent.and(other.agent),
            model: self.model.and(other.model),
            tool: self.tool.and(other.tool),
            inmost_model: self.inmost_model.and(other.inmost_model),
            inmost_tool: self.inmost_tool.and(other.inmost_tool),
        }
    }

    /// The same callbacks with other [semantics](CallbackSemantics), for those that travel with a run
    /// or a tree of agents. Without any, the agent's are theirs, as they always are for a bundle
    /// that is the agent's own.
    #[must_use]
    pub fn with_semantics(self, semantics: CallbackSemantics) -> Self {
        Self {
            agent: self.agent.with_semantics(semantics),
            model: self.model.with_semantics(semantics),
            tool: self.tool.with_semantics(semantics),
            ..self
        }
    }

    /// The same callbacks with these semantics, where they have none of their own.
    pub(crate) fn or_semantics(self, semantics: CallbackSemantics) -> Self {
        Self {
            agent: self.agent.or_semantics(semantics),
            model: self.model.or_semantics(semantics),
            tool: self.tool.or_semantics(semantics),
            ..self
        }
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

    /// The tools that its callbacks are for by name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        let (agent, model) = (self.agent.named_tools(), self.model.named_tools());
        let mut named: Vec<_> = agent.chain(model).chain(self.tool.named_tools()).collect();
        // An object with hooks for every call says it for each of them.
        named.extend(self.inmost_model.named_tools());
        named.extend(self.inmost_tool.named_tools());
        named.dedup();
        named
    }

    /// The callbacks around the model itself.
    pub(crate) fn around_model(&self) -> &Callbacks<ModelRequest> {
        &self.inmost_model
    }

    /// The callbacks around the tools themselves.
    pub(crate) fn around_tools(&self) -> &Callbacks<ToolRequest> {
        &self.inmost_tool
    }

    /// These callbacks after those that a run carries already for its agents. The semantics of the
    /// first stand.
    pub(crate) fn carry_globally(self, carried: &mut Carried) {
        self.carry(|carried| &mut carried.global, carried);
    }

    /// The same for those that were given with the run.
    pub(crate) fn carry_in_run(self, carried: &mut Carried) {
        self.carry(|carried| &mut carried.run, carried);
    }

    fn carry(self, at: fn(&mut Carried) -> &mut Extensions, carried: &mut Carried) {
        carry(self.agent, at(carried));
        carry(self.model, at(carried));
        carry(self.tool, at(carried));
        carry(self.inmost_model.inmost(), &mut carried.inmost);
        carry(self.inmost_tool.inmost(), &mut carried.inmost);
    }
}

fn carry<R: Request>(callbacks: Callbacks<R>, carried: &mut Extensions) {
    if !callbacks.is_empty() {
        let all = match carried.get::<Callbacks<R>>() {
            Some(outer) => outer.clone().and(callbacks),
            None => callbacks,
        };
        carried.insert(all);
    }
}
