use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::callback::Callback;
use super::layers::Layers;
use super::list::Callbacks;
use super::named_tool::NamedTool;
use super::rules::Rules;
use crate::call::Request;
use crate::model::{BoxModel, ModelRequest, ModelService};
use crate::panic::catch;
use crate::run::{AgentRequest, AgentService, BoxAgent};
use crate::stream::Observer;
use crate::tool::{BoxTool, ToolRequest, ToolService};

/// Callbacks and layers for every call of an agent, registered together.
///
/// Register it with [`callbacks`](crate::AgentBuilder::callbacks) for one agent, with
/// [`global_callbacks`](crate::AgentBuilder::global_callbacks) for the agent and all its sub-agents, or for one
/// run with [`with_callbacks`](AgentRequest::with_callbacks) and
/// [`with_global_callbacks`](AgentRequest::with_global_callbacks). Its callbacks follow the
/// [semantics](crate::AgentBuilder::semantics) of the agent that they are registered with or that
/// is called, also in sub-agents with other semantics. A type that implements
/// [`Hooks`](crate::compat::Hooks) converts to a bundle.
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
    edges: Edges,
    layers: BundleLayers,
    journal: BundleLayers,
    observers: Vec<Observer>,
    is_idle: Option<IsIdle>,
}

/// Tells whether a bundle has nothing to do.
#[derive(Clone)]
struct IsIdle(Arc<dyn Fn() -> bool + Send + Sync>);

impl fmt::Debug for IsIdle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IsIdle")
    }
}

/// The callbacks outside everything else, and those directly around the targets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edges {
    outermost_agent: Callbacks<AgentRequest>,
    outermost_model: Callbacks<ModelRequest>,
    outermost_tool: Callbacks<ToolRequest>,
    innermost_model: Callbacks<ModelRequest>,
    innermost_tool: Callbacks<ToolRequest>,
}

impl Edges {
    fn is_empty(&self) -> bool {
        self.outermost_agent.is_empty()
            && self.outermost_model.is_empty()
            && self.outermost_tool.is_empty()
            && self.innermost_model.is_empty()
            && self.innermost_tool.is_empty()
    }

    /// Appends other callbacks: inside these where they are outermost, and outside these where they
    /// are innermost.
    pub(crate) fn append(&mut self, other: &Self) {
        extend(
            &mut self.outermost_agent,
            other.outermost_agent.clone().outermost(),
        );
        extend(
            &mut self.outermost_model,
            other.outermost_model.clone().outermost(),
        );
        extend(
            &mut self.outermost_tool,
            other.outermost_tool.clone().outermost(),
        );
        extend(
            &mut self.innermost_model,
            other.innermost_model.clone().inmost(),
        );
        extend(
            &mut self.innermost_tool,
            other.innermost_tool.clone().inmost(),
        );
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        let mut named = Vec::new();
        named.extend(self.outermost_agent.named_tools());
        named.extend(self.outermost_model.named_tools());
        named.extend(self.outermost_tool.named_tools());
        named.extend(self.innermost_model.named_tools());
        named.extend(self.innermost_tool.named_tools());
        named
    }
}

/// Tower layers for every call of an agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct BundleLayers {
    agent: Layers<AgentRequest>,
    model: Layers<ModelRequest>,
    tool: Layers<ToolRequest>,
}

impl BundleLayers {
    /// Returns the layers for a call.
    pub(crate) fn of<R: InBundle>(&self) -> &Layers<R> {
        R::layers(self)
    }

    fn is_empty(&self) -> bool {
        self.agent.is_empty() && self.model.is_empty() && self.tool.is_empty()
    }

    /// Appends other layers, inside these.
    pub(super) fn append(&mut self, other: &Self) {
        self.agent.append(&other.agent);
        self.model.append(&other.model);
        self.tool.append(&other.tool);
    }
}

impl Bundle {
    /// Creates an empty bundle.
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

    /// Adds a callback directly around the model: inside every callback and layer of an agent,
    /// wherever the bundle is registered. Its `after` is the first to see the model's response, and
    /// its `before` the last to see the request.
    #[must_use]
    pub fn innermost_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.edges.innermost_model.push(callback);
        self
    }

    /// Adds a callback directly around the tools: inside every callback and layer of an agent,
    /// wherever the bundle is registered.
    #[must_use]
    pub fn innermost_tool(mut self, callback: impl Callback<ToolRequest>) -> Self {
        self.edges.innermost_tool.push(callback);
        self
    }

    /// Adds a callback around the whole agent, outside every other callback and layer except those
    /// of a [journal](Self::journal), wherever the bundle is registered. Its `before` is the first
    /// to see the request, and its `after` and `on_error` are the last to see what leaves the call:
    /// whoever wrote it, a callback's error included.
    ///
    /// It follows the default semantics, whatever the agent's. A response that it replaces keeps
    /// its [origin](crate::AgentResponse::origin).
    #[must_use]
    pub fn outermost_agent(mut self, callback: impl Callback<AgentRequest>) -> Self {
        self.edges.outermost_agent.push(callback);
        self
    }

    /// Adds a callback around everything else of model calls, as
    /// [`outermost_agent`](Self::outermost_agent) does around agents.
    #[must_use]
    pub fn outermost_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.edges.outermost_model.push(callback);
        self
    }

    /// Adds a callback around everything else of tool calls, as
    /// [`outermost_agent`](Self::outermost_agent) does around agents. Its `after` is also asked
    /// about each message of [`tool_result_messages`](crate::AgentBuilder::tool_result_messages),
    /// as a response with the message's parts.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::callback::{Bundle, after_tool, before_tool};
    /// use tower_agent::testing::{ScriptedModel, Turn};
    /// use tower_agent::{Action, Agent, Tool, ToolResponse};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let closed = after_tool(|_, _| Action::Respond(ToolResponse::new("hidden")));
    /// let model = ScriptedModel::new([Turn::tool("look", json!({})), Turn::from_text("Done.")]);
    /// let agent = Agent::builder(model.clone())
    ///     .tool(Tool::function("look", "Looks.", |_: serde_json::Value| "a secret"))
    ///     .on_tool(before_tool(|_| Action::Respond(ToolResponse::new("another secret"))))
    ///     .callbacks(Bundle::new().outermost_tool(closed))
    ///     .build()?;
    ///
    /// agent.run("?").await?;
    /// assert_eq!(model.requests()[1].messages()[2].tool_results().next().unwrap().text(), "hidden");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn outermost_tool(mut self, callback: impl Callback<ToolRequest>) -> Self {
        self.edges.outermost_tool.push(callback);
        self
    }

    /// Adds a layer for agent calls. See [`model_layer`](Self::model_layer).
    #[must_use]
    pub fn agent_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<BoxAgent, Service: AgentService> + Send + Sync + 'static,
    {
        self.layers.agent.push(layer);
        self
    }

    /// Adds a layer for model calls. The layers of a bundle are outside its callbacks, the first
    /// registered outermost.
    ///
    /// In a bundle for a whole tree or for one run, a layer is also outside everything of each
    /// agent's own. It is applied anew in every call: state that calls share belongs into the
    /// layer, behind an `Arc`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower::timeout::TimeoutLayer;
    /// use tower_agent::callback::Bundle;
    ///
    /// let limits = Bundle::new()
    ///     .model_layer(TimeoutLayer::new(Duration::from_secs(60)))
    ///     .tool_layer(TimeoutLayer::new(Duration::from_secs(10)));
    /// # drop(limits);
    /// ```
    #[must_use]
    pub fn model_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<BoxModel, Service: ModelService> + Send + Sync + 'static,
    {
        self.layers.model.push(layer);
        self
    }

    /// Adds a layer for tool calls. See [`model_layer`](Self::model_layer).
    #[must_use]
    pub fn tool_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<BoxTool, Service: ToolService> + Send + Sync + 'static,
    {
        self.layers.tool.push(layer);
        self
    }

    /// Adds the layers of a journal, which stores what calls return, so that another process can
    /// continue the run. Register it for the whole tree of agents, or for one run.
    ///
    /// They are outside every other callback and layer, wherever they are registered: something
    /// outside could repeat a stored call, leave it out or move it to another task, and would see
    /// only the calls that are made.
    #[must_use]
    pub fn journal<A, M, T>(mut self, agent: A, model: M, tool: T) -> Self
    where
        A: Layer<BoxAgent, Service: AgentService> + Send + Sync + 'static,
        M: Layer<BoxModel, Service: ModelService> + Send + Sync + 'static,
        T: Layer<BoxTool, Service: ToolService> + Send + Sync + 'static,
    {
        self.journal.agent.push(agent);
        self.journal.model.push(model);
        self.journal.tool.push(tool);
        self
    }

    /// Adds an observer, which is [told](crate::stream::observer()) what happens in the agent and in all agents
    /// inside it, wherever the bundle is registered.
    ///
    /// An observer changes no call and delays none. Runs of an agent without one pay nothing for it.
    #[must_use]
    pub fn observer(mut self, observer: Observer) -> Self {
        self.observers.push(observer);
        self
    }

    /// Says when the bundle has nothing to do, which saves its time: an agent that has it among its
    /// [global callbacks](crate::AgentBuilder::global_callbacks) asks when it is called, and where the answer
    /// is `true`, its call and all calls inside go past the bundle. Defaults to never.
    ///
    /// This saves time and is no switch. A bundle of one agent's own [callbacks](crate::AgentBuilder::callbacks),
    /// one that is given with a request, one that is joined with [another](Self::and), and a
    /// [journal](Self::journal) are always called.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use tower_agent::Agent;
    /// use tower_agent::callback::{Bundle, before_model};
    /// use tower_agent::testing::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let viewers = Arc::new(AtomicU32::new(0));
    /// let seen = viewers.clone();
    /// let show = Bundle::new()
    ///     .on_model(before_model(|_| println!("a model call")))
    ///     .idle_when(move || seen.load(Ordering::Relaxed) == 0);
    /// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
    ///     .global_callbacks(show)
    ///     .build()?;
    ///
    /// agent.run("This is not shown.").await?;
    /// viewers.store(1, Ordering::Relaxed);
    /// agent.run("This is.").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn idle_when(mut self, is_idle: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.is_idle = Some(IsIdle(Arc::new(is_idle)));
        self
    }

    /// Appends the callbacks and layers of another bundle. For calls that this bundle has callbacks
    /// for, its semantics are kept; for the others, those of `other` are used.
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        let other = other.into();
        let mut layers = self.layers;
        layers.append(&other.layers);
        let mut journal = self.journal;
        journal.append(&other.journal);
        let mut edges = self.edges;
        edges.append(&other.edges);
        let mut observers = self.observers;
        observers.extend(other.observers);
        Self {
            agent: self.agent.and(other.agent),
            model: self.model.and(other.model),
            tool: self.tool.and(other.tool),
            edges,
            layers,
            journal,
            observers,
            // What one of them says is not true of the other.
            is_idle: None,
        }
    }

    /// Sets the semantics of callbacks for a run or a tree of agents, such as one of
    /// [`CallbackSemantics`](crate::compat::CallbackSemantics). Defaults to the agent's, which a
    /// bundle of one agent always uses.
    #[must_use]
    pub fn semantics(self, semantics: impl Rules) -> Self {
        Self {
            // Not the innermost ones: for everything outside, they are part of the service, and
            // follow the default rules wherever the bundle is registered.
            agent: self.agent.with_rules(Some(&semantics)),
            model: self.model.with_rules(Some(&semantics)),
            tool: self.tool.with_rules(Some(&semantics)),
            ..self
        }
    }

    /// Sets the rules of callbacks that have none.
    pub(super) fn or_rules(self, rules: &dyn Rules) -> Self {
        Self {
            agent: self.agent.or_rules(rules),
            model: self.model.or_rules(rules),
            tool: self.tool.or_rules(rules),
            ..self
        }
    }

    /// Returns the callbacks for agent calls.
    #[must_use]
    pub fn agent(&self) -> &Callbacks<AgentRequest> {
        &self.agent
    }

    /// Returns the callbacks for model calls.
    #[must_use]
    pub fn model(&self) -> &Callbacks<ModelRequest> {
        &self.model
    }

    /// Returns the callbacks for tool calls.
    #[must_use]
    pub fn tool(&self) -> &Callbacks<ToolRequest> {
        &self.tool
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        let mut named = Vec::new();
        named.extend(self.agent.named_tools());
        named.extend(self.model.named_tools());
        named.extend(self.tool.named_tools());
        named.extend(self.edges.named_tools());
        named.extend(self.layers.agent.named_tools());
        named.extend(self.layers.model.named_tools());
        named.extend(self.layers.tool.named_tools());
        // A type with hooks for every call returns the tools once for each of them.
        named.dedup();
        named
    }

    /// Returns the callbacks outside everything else and directly around the targets.
    pub(crate) fn edges(&self) -> &Edges {
        &self.edges
    }

    /// Returns the layers, without those of a journal.
    pub(crate) fn layers(&self) -> &BundleLayers {
        &self.layers
    }

    /// Returns the layers of a journal.
    pub(super) fn journal_layers(&self) -> &BundleLayers {
        &self.journal
    }

    /// Returns the observers.
    pub(crate) fn observers(&self) -> &[Observer] {
        &self.observers
    }

    /// Returns whether the bundle has a journal.
    pub(crate) fn has_journal(&self) -> bool {
        !self.journal.is_empty()
    }

    /// Returns whether the bundle may say that it has nothing to do.
    pub(super) fn may_be_idle(&self) -> bool {
        self.is_idle.is_some()
    }

    /// Returns whether the bundle has nothing to do now.
    pub(super) fn is_idle(&self) -> bool {
        // An agent with a journal says that it is durable.
        let is_idle = self.is_idle.as_ref().filter(|_| !self.has_journal());
        // A function that panics has not said so.
        is_idle.is_some_and(|is_idle| catch(|| (is_idle.0)()).unwrap_or(false))
    }

    /// Returns whether the bundle is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.agent.is_empty()
            && self.model.is_empty()
            && self.tool.is_empty()
            && self.edges.is_empty()
            && self.layers.is_empty()
            && self.journal.is_empty()
            && self.observers.is_empty()
    }

    /// Appends another bundle's callbacks and layers for the calls, except those of a journal and
    /// those at the edges. Of lists that have callbacks, the first one's semantics are kept.
    pub(super) fn extend(&mut self, other: Self) {
        extend(&mut self.agent, other.agent);
        extend(&mut self.model, other.model);
        extend(&mut self.tool, other.tool);
        // Without the journal's: the tree keeps those of every bundle apart, outside all other
        // layers.
        self.layers.append(&other.layers);
    }
}

/// The callbacks that a caller adds to a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunBundles {
    /// Outside everything of the agents' own.
    global: Bundle,
    /// Inside it.
    inside: Bundle,
}

impl RunBundles {
    /// Returns the callbacks outside everything of the agents' own.
    pub(super) fn global(&self) -> &Bundle {
        &self.global
    }

    /// Returns the callbacks inside everything of the agents' own.
    pub(super) fn inside(&self) -> &Bundle {
        &self.inside
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        let mut named = self.global.named_tools();
        named.extend(self.inside.named_tools());
        named
    }
}

impl AgentRequest {
    /// Adds callbacks for this run, inside those of the agents. See
    /// [`with_global_callbacks`](Self::with_global_callbacks) for callbacks outside them.
    ///
    /// They apply to sub-agents and agents used as tools as well. Unless they have
    /// [semantics](Bundle::semantics) of their own, they follow those of the called agent.
    #[must_use]
    pub fn with_callbacks(mut self, callbacks: impl Into<Bundle>) -> Self {
        let bundles = self.bundles_mut();
        // A second bundle joins the first: layers around an agent may add callbacks of their own.
        bundles.inside = std::mem::take(&mut bundles.inside).and(callbacks);
        self
    }

    /// Adds callbacks for this run, outside everything of the agents' own: directly after the
    /// agent's [global callbacks](crate::AgentBuilder::global_callbacks), as if registered there.
    ///
    /// Outside a retry of the agent, a budget of one user counts each call once. They apply to
    /// sub-agents and agents used as tools as well. Give them again to a request that resumes the
    /// run: a checkpoint has no callbacks.
    ///
    /// ```
    /// use tower_agent::callback::{Bundle, before_model, wrap_model};
    /// use tower_agent::testing::{ScriptedModel, Turn};
    /// use tower_agent::{Agent, AgentRequest};
    ///
    /// # fn main() -> Result<(), tower_agent::BoxError> {
    /// let retry = wrap_model(|request, mut next| async move { next.run(request).await });
    /// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("hi")]))
    ///     .model_layer(retry.named("retry"))
    ///     .build()?;
    /// let count = Bundle::new().on_model(before_model(|_| println!("a call")).named("count"));
    /// let request = AgentRequest::new("Hello").with_global_callbacks(count);
    /// assert_eq!(
    ///     agent.explain_for(&request).to_string(),
    ///     "\
    /// agent `agent`
    ///   loop of at most 25 model calls
    ///     model call
    ///       count
    ///         [retry]
    ///           ScriptedModel
    ///     tool calls, 8 at a time
    /// "
    /// );
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_global_callbacks(mut self, callbacks: impl Into<Bundle>) -> Self {
        let bundles = self.bundles_mut();
        bundles.global = std::mem::take(&mut bundles.global).and(callbacks);
        self
    }

    fn bundles_mut(&mut self) -> &mut RunBundles {
        // Copied only if a clone of the request shares them.
        Arc::make_mut(self.callbacks_mut().get_or_insert_default())
    }
}

fn extend<R: Request>(callbacks: &mut Callbacks<R>, more: Callbacks<R>) {
    // An empty list has no rules to keep: it takes those of the first callbacks.
    if callbacks.is_empty() {
        *callbacks = more;
    } else {
        callbacks.append(&more);
    }
}

/// A kind of call that a bundle has callbacks for.
pub(crate) trait InBundle: Request {
    /// The callbacks for the call.
    fn around(bundle: &Bundle) -> &Callbacks<Self>;

    /// The callbacks outside everything else.
    fn outermost(edges: &Edges) -> &Callbacks<Self>;

    /// The callbacks directly around its target.
    fn inmost(edges: &Edges) -> Option<&Callbacks<Self>>;

    /// The layers for the call.
    fn layers(layers: &BundleLayers) -> &Layers<Self>;
}

impl InBundle for AgentRequest {
    fn around(bundle: &Bundle) -> &Callbacks<Self> {
        &bundle.agent
    }

    fn outermost(edges: &Edges) -> &Callbacks<Self> {
        &edges.outermost_agent
    }

    fn inmost(_: &Edges) -> Option<&Callbacks<Self>> {
        None
    }

    fn layers(layers: &BundleLayers) -> &Layers<Self> {
        &layers.agent
    }
}

impl InBundle for ModelRequest {
    fn around(bundle: &Bundle) -> &Callbacks<Self> {
        &bundle.model
    }

    fn outermost(edges: &Edges) -> &Callbacks<Self> {
        &edges.outermost_model
    }

    fn inmost(edges: &Edges) -> Option<&Callbacks<Self>> {
        Some(&edges.innermost_model)
    }

    fn layers(layers: &BundleLayers) -> &Layers<Self> {
        &layers.model
    }
}

impl InBundle for ToolRequest {
    fn around(bundle: &Bundle) -> &Callbacks<Self> {
        &bundle.tool
    }

    fn outermost(edges: &Edges) -> &Callbacks<Self> {
        &edges.outermost_tool
    }

    fn inmost(edges: &Edges) -> Option<&Callbacks<Self>> {
        Some(&edges.innermost_tool)
    }

    fn layers(layers: &BundleLayers) -> &Layers<Self> {
        &layers.tool
    }
}
