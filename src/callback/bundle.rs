use std::convert::identity;
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::callback::Callback;
use super::list::Callbacks;
use super::named_tool::NamedTool;
use super::position::Position;
use super::rules::Rules;
use super::stack::Stacks;
use crate::model::{BoxModel, ModelRequest, ModelService};
use crate::panic::catch;
use crate::run::{AgentRequest, AgentService, BoxAgent};
use crate::stream::Observer;
use crate::tool::{BoxTool, ToolRequest, ToolService};

/// Callbacks and layers for every call of an agent, registered together.
///
/// Register it with [`callbacks`](crate::AgentBuilder::callbacks) for one agent, with
/// [`global_callbacks`](crate::AgentBuilder::global_callbacks) for the agent and all its
/// sub-agents, or for one run with [`with_callbacks`](AgentRequest::with_callbacks) and
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
    /// As for a tree of agents; other places give [their own position](Position::own).
    pub(crate) around: Stacks,
    pub(crate) observers: Vec<Observer>,
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

impl Bundle {
    /// Creates an empty bundle.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a callback for agent calls.
    #[must_use]
    pub fn on_agent(mut self, callback: impl Callback<AgentRequest>) -> Self {
        self.around.agent.callback_at(Position::Global, callback);
        self
    }

    /// Adds a callback for model calls.
    #[must_use]
    pub fn on_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.around.model.callback_at(Position::Global, callback);
        self
    }

    /// Adds a callback for tool calls.
    #[must_use]
    pub fn on_tool(mut self, callback: impl Callback<ToolRequest>) -> Self {
        self.around.tool.callback_at(Position::Global, callback);
        self
    }

    /// Adds a callback directly around the agent's loop, or a team's members: inside every callback
    /// and layer of an agent, wherever the bundle is registered. Its `before` is the last to see
    /// the request, and its `after` and `on_error` are the first to see what the agent has made of
    /// it.
    #[must_use]
    pub fn innermost_agent(mut self, callback: impl Callback<AgentRequest>) -> Self {
        self.around.agent.callback_at(Position::Innermost, callback);
        self
    }

    /// Adds a callback directly around the model: inside every callback and layer of an agent,
    /// wherever the bundle is registered. Its `after` is the first to see the model's response, and
    /// its `before` the last to see the request.
    #[must_use]
    pub fn innermost_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.around.model.callback_at(Position::Innermost, callback);
        self
    }

    /// Adds a callback directly around the tools: inside every callback and layer of an agent,
    /// wherever the bundle is registered.
    #[must_use]
    pub fn innermost_tool(mut self, callback: impl Callback<ToolRequest>) -> Self {
        self.around.tool.callback_at(Position::Innermost, callback);
        self
    }

    /// Adds a guard inside of every [`innermost_tool`](Self::innermost_tool) as well, wherever
    /// either is registered: its `before` sees the arguments that the tool gets, and nothing
    /// changes them afterwards. It must not change them to others itself; several are asked in the
    /// order of registration.
    #[must_use]
    pub fn at_tool(mut self, guard: impl Callback<ToolRequest>) -> Self {
        self.around.tool.callback_at(Position::AtTarget, guard);
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
        self.around.agent.callback_at(Position::Outermost, callback);
        self
    }

    /// Adds two callbacks that belong together: one around everything else of model calls, as
    /// [`outermost_model`](Self::outermost_model) does, and one directly around the model, as
    /// [`innermost_model`](Self::innermost_model) does.
    ///
    /// Where no callback and no layer is between the two, the inner one is not asked, since it
    /// would see what the outer one sees: the request then
    /// [says so](ModelRequest::is_direct), and the outer one does the work of both.
    #[must_use]
    pub fn edges_of_model(
        mut self,
        outer: impl Callback<ModelRequest>,
        inner: impl Callback<ModelRequest>,
    ) -> Self {
        let pair = Arc::new(());
        for (position, callback) in [
            (Position::Outermost, outer.erase()),
            (Position::Innermost, inner.erase()),
        ] {
            let callback = callback.of_pair(&pair);
            self.around.model.callback_at(position, callback);
        }
        self
    }

    /// Adds a callback around everything else of model calls, as
    /// [`outermost_agent`](Self::outermost_agent) does around agents.
    #[must_use]
    pub fn outermost_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.around.model.callback_at(Position::Outermost, callback);
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
    /// use tower_agent::{Action, Agent, Tool, ToolResponse};
    /// use tower_agent_test::{ScriptedModel, Turn};
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
        self.around.tool.callback_at(Position::Outermost, callback);
        self
    }

    /// Adds a layer for agent calls. See [`model_layer`](Self::model_layer).
    #[must_use]
    pub fn agent_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<BoxAgent, Service: AgentService> + Send + Sync + 'static,
    {
        self.around.agent.layer_at(Position::GlobalLayers, layer);
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
        self.around.model.layer_at(Position::GlobalLayers, layer);
        self
    }

    /// Adds a layer for tool calls. See [`model_layer`](Self::model_layer).
    #[must_use]
    pub fn tool_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<BoxTool, Service: ToolService> + Send + Sync + 'static,
    {
        self.around.tool.layer_at(Position::GlobalLayers, layer);
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
        self.around.agent.layer_at(Position::Journal, agent);
        self.around.model.layer_at(Position::Journal, model);
        self.around.tool.layer_at(Position::Journal, tool);
        self
    }

    /// Adds an observer, which is [told](crate::stream::observer()) what happens in the agent and
    /// in all agents inside it, wherever the bundle is registered.
    ///
    /// An observer changes no call and delays none. Runs of an agent without one pay nothing for
    /// it.
    #[must_use]
    pub fn observer(mut self, observer: Observer) -> Self {
        self.observers.push(observer);
        self
    }

    /// Says when the bundle has nothing to do, which saves its time: an agent that has it among its
    /// [global callbacks](crate::AgentBuilder::global_callbacks) asks when it is called, and where
    /// the answer is `true`, its call and all calls inside go past the bundle. Defaults to never.
    ///
    /// This saves time and is no switch. A bundle of one agent's own
    /// [callbacks](crate::AgentBuilder::callbacks), one that is given with a request, one that is
    /// joined with [another](Self::and), and a [journal](Self::journal) are always called.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use tower_agent::Agent;
    /// use tower_agent::callback::{Bundle, before_model};
    /// use tower_agent_test::{ScriptedModel, Turn};
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
    pub fn and(mut self, other: impl Into<Self>) -> Self {
        let other = other.into();
        self.around.append(&other.around, identity, None);
        self.observers.extend(other.observers);
        // What one of them says is not true of the other.
        self.is_idle = None;
        self
    }

    /// Sets the semantics of callbacks for a run or a tree of agents, such as one of
    /// [`CallbackSemantics`](crate::compat::CallbackSemantics). Defaults to the agent's, which a
    /// bundle of one agent always uses.
    #[must_use]
    pub fn semantics(mut self, semantics: impl Rules) -> Self {
        let at = Position::Global;
        let rules: Option<&dyn Rules> = Some(&semantics);
        self.around.agent.band_at(at, |band| band.set_rules(rules));
        self.around.model.band_at(at, |band| band.set_rules(rules));
        self.around.tool.band_at(at, |band| band.set_rules(rules));
        self
    }

    /// Returns the callbacks for agent calls.
    #[must_use]
    pub fn agent(&self) -> Callbacks<AgentRequest> {
        self.around.agent.band(Position::Global)
    }

    /// Returns the callbacks for model calls.
    #[must_use]
    pub fn model(&self) -> Callbacks<ModelRequest> {
        self.around.model.band(Position::Global)
    }

    /// Returns the callbacks for tool calls.
    #[must_use]
    pub fn tool(&self) -> Callbacks<ToolRequest> {
        self.around.tool.band(Position::Global)
    }

    /// Returns the tools that the callbacks name.
    pub(crate) fn named_tools(&self) -> Vec<NamedTool> {
        let mut named = self.around.agent.named_tools();
        named.extend(self.around.model.named_tools());
        named.extend(self.around.tool.named_tools());
        // A type with hooks for every call returns the tools once for each of them.
        named.dedup();
        named
    }

    /// Returns whether the bundle has nothing to do now.
    pub(crate) fn is_idle(&self) -> bool {
        // An agent with a journal says that it is durable.
        let is_idle = self.is_idle.as_ref().filter(|_| !self.around.has_journal());
        // A function that panics has not said so.
        is_idle.is_some_and(|is_idle| catch(|| (is_idle.0)()).unwrap_or(false))
    }

    /// Appends the bundle to those of an agent's tree, inside them.
    pub(crate) fn push_to(self, bundles: &mut Vec<Self>) {
        if self.around.is_empty() && self.observers.is_empty() {
            return;
        }
        match bundles.last_mut() {
            // One bundle is faster to enter than two.
            Some(last) if last.is_idle.is_none() && self.is_idle.is_none() => {
                *last = std::mem::take(last).and(self);
            }
            _ => bundles.push(self),
        }
    }
}

/// The callbacks that a caller adds to a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunBundles {
    /// Outside everything of the agents' own.
    pub(super) global: Bundle,
    /// Inside it.
    pub(super) inside: Bundle,
}

impl RunBundles {
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
    /// use tower_agent::{Agent, AgentRequest};
    /// use tower_agent_test::{ScriptedModel, Turn};
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
    pub fn with_global_callbacks(mut self, callbacks: impl Into<Bundle>) -> Self {
        let bundles = self.bundles_mut();
        bundles.global = std::mem::take(&mut bundles.global).and(callbacks);
        self
    }

    fn bundles_mut(&mut self) -> &mut RunBundles {
        // Copied only if a clone of the request shares them.
        Arc::make_mut(self.callbacks.get_or_insert_default())
    }
}
