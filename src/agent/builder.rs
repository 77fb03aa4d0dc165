use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;

use tower_layer::Layer;

use super::agent::{Agent, AgentInner};
use super::answer_calls::AnswerCalls;
use super::build_error::BuildError;
use super::explain::{Explained, Target};
use super::loop_config::{LoopConfig, LoopOptions};
use super::loop_state;
use super::named_tools::{self, KnownTools, ToolNames};
use super::outline::Outline;
use super::progress::LoopProgress;
use super::shell::{Shell, shell_setters};
use super::tool_messages::{IntoToolMessages, ShowTool, ToolAnswer};
use super::transfer;
use crate::callback::{Bundle, Callback, LayerInner, Position, Rules};
use crate::model::{BoxModel, ModelRequest, ModelService, Settings};
use crate::run::{AgentRequest, AgentService};
use crate::tool::{BoxTool, Tool, ToolRequest, ToolService, ToolSet};
use crate::type_name::without_paths;

/// Builds an agent; created by [`Agent::builder`].
///
/// Each call has its own stack: `on_model` and `model_layer` for the model, `on_tool` and
/// `tool_layer` for the tools, `on_agent` and `agent_layer` for the agent itself. In each, the
/// first registered is outermost; neighbouring callbacks form one band.
#[must_use = "a builder does nothing until `build` is called"]
pub struct AgentBuilder {
    shell: Shell,
    model: BoxModel,
    model_name: String,
    tools: Vec<Tool>,
    tools_of_runs: BTreeSet<Arc<str>>,
    max_iterations: u32,
    options: LoopOptions,
}

/// Checks that no two of these agents have the same name.
pub(super) fn check_members(members: &[Agent]) -> Result<(), BuildError> {
    let mut names = HashSet::new();
    match members.iter().find(|member| !names.insert(member.name())) {
        Some(twice) => Err(BuildError::DuplicateAgent(twice.name().into())),
        None => Ok(()),
    }
}

impl Agent {
    /// Creates a builder for an agent with this model.
    pub fn builder(model: impl ModelService) -> AgentBuilder {
        AgentBuilder::new(model)
    }
}

impl AgentBuilder {
    fn new(model: impl ModelService) -> Self {
        Self {
            shell: Shell::new("agent".into()),
            model_name: without_paths(std::any::type_name_of_val(&model)),
            model: BoxModel::leaf(AnswerCalls(model), None),
            tools: Vec::new(),
            tools_of_runs: BTreeSet::new(),
            max_iterations: 25,
            options: LoopOptions {
                instructions: None,
                settings: Arc::default(),
                tool_concurrency: 8,
                show_tool: None,
                tool_failure_message: None,
                stop_when: None,
                sub_agents: Vec::new(),
                output_key: None,
                is_without_history: false,
            },
        }
    }

    /// Sets the agent's name, used in contexts, errors and traces. Defaults to `"agent"`.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.shell.name = name.into();
        self
    }

    shell_setters!("agent");

    /// Sets the system prompt. Placeholders such as `{city}` are text, unless the
    /// [semantics](crate::callback::LoopRules::placeholders) fill them.
    pub fn instructions(mut self, instructions: impl Into<Arc<str>>) -> Self {
        self.options.instructions = Some(instructions.into());
        self
    }

    /// Sets the settings of model calls; a request's own settings override them.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.options.settings = Arc::new(settings);
        self
    }

    /// Adds a tool.
    pub fn tool(mut self, tool: Tool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Adds several tools.
    pub fn tools(mut self, tools: impl IntoIterator<Item = Tool>) -> Self {
        self.tools.extend(tools);
        self
    }

    /// Declares tools that are added for each [run](AgentRequest::with_tools), such as a client's,
    /// so that guards of this agent can name them. If a guard names a tool that the run does not
    /// provide, the run fails at its start with an
    /// [`InvalidRequest`](crate::ErrorKind::InvalidRequest).
    pub fn tools_of_runs(mut self, names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Self {
        self.tools_of_runs.extend(names.into_iter().map(Into::into));
        self
    }

    /// Lets the model transfer the conversation to another agent.
    ///
    /// The model receives a tool `transfer_to_agent`, which passes through the tool callbacks like
    /// any other: a `before_tool` that responds blocks it, and so does an `after_tool` that
    /// replaces its result. After the tool has run, the sub-agent continues the conversation after
    /// that turn, within the same run, and its response ends this agent; `after_agent` sees the
    /// messages of both. If the model names several agents in one turn, the last one continues.
    ///
    /// By default the sub-agent cannot hand the conversation back, and the user's next message is
    /// for this agent again. The semantics have rules for both:
    /// [`transfer_to_parent`](crate::callback::LoopRules::transfer_to_parent),
    /// [`transfer_to_peers`](crate::callback::LoopRules::transfer_to_peers) and
    /// [`next_turn`](crate::callback::LoopRules::next_turn). If it is handed back, this agent's
    /// limit of model calls counts those of its sub-agents as well, so that no two of them can go
    /// on for ever.
    ///
    /// ```
    /// # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
    /// # fn main() -> Result<(), BoxError> {
    /// # let model = tower::service_fn(|_: ModelRequest| async {
    /// #     Ok::<_, BoxError>(ModelResponse::from_text("done"))
    /// # });
    /// let billing = Agent::builder(model)
    ///     .name("billing")
    ///     .description("Knows every invoice.")
    ///     .build()?;
    /// let desk = Agent::builder(model).name("desk").sub_agent(billing).build()?;
    /// # drop(desk);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sub_agent(mut self, agent: Agent) -> Self {
        self.options.sub_agents.push(agent);
        self
    }

    /// Sets whether this agent, as a sub-agent, may transfer the conversation back to the agent
    /// that has it. Defaults to what the
    /// [semantics](crate::callback::LoopRules::transfer_to_parent) say.
    pub fn transfer_to_parent(mut self, may: bool) -> Self {
        self.shell.transfer_to_parent = Some(may);
        self
    }

    /// Sets whether this agent, as a sub-agent, may transfer the conversation to the other
    /// sub-agents of the agent that has it. Defaults to what the
    /// [semantics](crate::callback::LoopRules::transfer_to_peers) say.
    pub fn transfer_to_peers(mut self, may: bool) -> Self {
        self.shell.transfer_to_peers = Some(may);
        self
    }

    /// Stores what the agent says in the state, under this key: all its text in the run so far,
    /// once a message with text is part of the conversation, and so before `after_agent`. An answer
    /// of `before_agent` is stored as well. What its sub-agents and tools say is not.
    ///
    /// ```
    /// use tower_agent::Agent;
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let model = ScriptedModel::new([Turn::from_text("A draft.")]);
    /// let writer = Agent::builder(model).output_key("draft").build()?;
    /// let response = writer.run("Write.").await?;
    /// assert_eq!(response.state().get("draft").unwrap(), "A draft.");
    /// # Ok(())
    /// # }
    /// ```
    pub fn output_key(mut self, key: impl Into<Arc<str>>) -> Self {
        self.options.output_key = Some(key.into());
        self
    }

    /// Shows the model the current turn alone: the last message of the user, or of another agent in
    /// the conversation, and what follows it. The transcript, callbacks of the agent itself and
    /// other agents have the whole conversation.
    pub fn without_history(mut self) -> Self {
        self.options.is_without_history = true;
        self
    }

    /// Sets the maximum number of model calls of a run. Defaults to 25. A run that pauses for
    /// answers and [goes on](crate::RunContext::is_continuation) is the same run.
    pub fn max_iterations(mut self, max: u32) -> Self {
        self.max_iterations = max;
        self
    }

    /// Sets how many tool calls of one turn run in parallel. Defaults to 8. The results keep the
    /// order of the calls. With 1, the calls behind one that interrupts the run are made after its
    /// answer.
    pub fn tool_concurrency(mut self, limit: usize) -> Self {
        self.options.tool_concurrency = limit;
        self
    }

    /// Stops the run after a turn with tool calls if `stop` returns `true`. The run then ends with
    /// [`EndReason::StopCondition`](crate::EndReason::StopCondition).
    ///
    /// ```
    /// # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
    /// # let model = tower::service_fn(|_: ModelRequest| async {
    /// #     Ok::<_, BoxError>(ModelResponse::from_text("done"))
    /// # });
    /// let builder = Agent::builder(model).stop_when(|turn| turn.has_called("submit"));
    /// # drop(builder);
    /// ```
    pub fn stop_when(
        mut self,
        stop: impl Fn(&LoopProgress<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.options.stop_when = Some(Box::new(stop));
        self
    }

    /// Adds a callback for model calls.
    pub fn on_model(mut self, callback: impl Callback<ModelRequest>) -> Self {
        self.shell.own.model.callback(callback);
        self
    }

    /// Adds a layer for model calls. What is registered after it is inside it.
    pub fn model_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<LayerInner<ModelRequest>, Service: ModelService> + Send + Sync + 'static,
    {
        self.shell.own.model.layer(layer);
        self
    }

    /// Adds a callback for tool calls.
    pub fn on_tool(mut self, callback: impl Callback<ToolRequest>) -> Self {
        self.shell.own.tool.callback(callback);
        self
    }

    /// Adds a layer for tool calls. What is registered after it is inside it.
    pub fn tool_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<LayerInner<ToolRequest>, Service: ToolService> + Send + Sync + 'static,
    {
        self.shell.own.tool.layer(layer);
        self
    }

    /// Sets the function that decides which messages the model receives for a tool result. It runs
    /// after every callback and layer; a later function replaces it.
    ///
    /// It may return several messages, including images. If none of them is a result of the call,
    /// the default message is added before them. Messages that are no result follow the results of
    /// the turn; while calls of the turn are open, they have the role [`Tool`](crate::Role::Tool).
    /// It does not run for failures, which the model reads instead.
    ///
    /// ```
    /// use tower_agent::{Message, Part};
    /// use tower_agent::agent::ToolAnswer;
    /// use tower_agent::message::ToolResult;
    /// # use tower_agent::{Agent, BoxError, ModelRequest, ModelResponse};
    /// # let model = tower::service_fn(|_: ModelRequest| async {
    /// #     Ok::<_, BoxError>(ModelResponse::from_text("done"))
    /// # });
    ///
    /// let builder = Agent::builder(model).tool_result_messages(|answer: ToolAnswer| {
    ///     let lines = answer.response.value().as_array()?;
    ///     let text: Vec<_> = lines.iter().map(|line| line.to_string()).collect();
    ///     let result = ToolResult::new(&answer.call, [Part::from_text(text.join("\n"))]);
    ///     Some(vec![Message::tool(result)])
    /// });
    /// # drop(builder);
    /// ```
    pub fn tool_result_messages<F, O, M>(mut self, function: F) -> Self
    where
        F: Fn(ToolAnswer) -> O + Send + Sync + 'static,
        O: IntoToolMessages<M>,
    {
        self.options.show_tool = Some(ShowTool::new(function));
        self
    }

    /// Sets the text that the model reads when a tool fails, for tools whose errors may reveal
    /// internals or secrets. Defaults to the error's kind and message.
    ///
    /// It applies to every tool without [its own](Tool::failure_message), and to errors of layers
    /// and callbacks. `on_tool_error` and the log, as a `tracing` warning, receive the full error.
    /// Errors about unknown tools and invalid arguments, and refusals of the kind
    /// [`Denied`](crate::ErrorKind::Denied), are always shown to the model. Sub-agents have their
    /// own setting.
    pub fn tool_failure_message(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.options.tool_failure_message = Some(message.into());
        self
    }

    /// Adds a bundle: its layers and callbacks for each call, after what was registered before.
    pub fn callbacks(mut self, bundle: impl Into<Bundle>) -> Self {
        let bundle = bundle.into();
        self.shell.own.append(&bundle.around, Position::own, None);
        for observer in bundle.observers {
            let observing = Bundle::new().observer(observer);
            observing.push_to(&mut self.shell.global);
        }
        self
    }

    /// Builds the agent.
    ///
    /// The [guide](crate::guide::guards) says in which order to register middleware.
    ///
    /// # Errors
    ///
    /// Fails if two tools or two sub-agents have the same name, a provider would reject a tool, the
    /// agent's name is invalid, no tool could run, a callback names a tool that does not exist, or
    /// a [journal](Bundle::journal) is among the agent's own [callbacks](Self::callbacks).
    /// Callbacks inside a composed layer, such as a `ServiceBuilder` stack, are not checked.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        self.shell.settle()?;
        check_members(&self.options.sub_agents)?;
        if self.options.tool_concurrency == 0 {
            return Err(BuildError::NoToolConcurrency);
        }
        // A tool like any other, for the checks below and for the outline.
        self.tools.extend(transfer::tool(
            transfer::targets(&self.options.sub_agents).collect(),
        ));
        let outline = Arc::new(self.outline());
        let mut own = ToolNames::new();
        // What they are is known when a run brings them.
        named_tools::add(
            &mut own,
            self.tools_of_runs.iter().map(|name| (&**name, true)),
        );
        let declared = self.tools.iter().map(|tool| tool.declaration());
        let declared = declared.map(|tool| (tool.name(), named_tools::is_agent(tool)));
        named_tools::add(&mut own, declared);
        let mut all = own.clone();
        let of_agents = self.tools.iter().map(Tool::inner_tools);
        let of_agents = of_agents.chain(self.options.sub_agents.iter().map(Agent::known_tools));
        let of_agents = of_agents.flatten().map(|(name, is)| (&**name, *is));
        named_tools::add(&mut all, of_agents);
        let mut tool_set = ToolSet::new();
        for tool in self.tools {
            tool_set.insert(tool)?;
        }
        let Shell {
            global,
            own: around,
            rules,
            ..
        } = self.shell;
        // Callbacks of the agent's own calls can name only its own tools.
        let mut named = around.model.named_tools();
        named.extend(around.tool.named_tools());
        named_tools::check(named.iter().cloned(), &own)?;
        // Callbacks around the agent also see the calls of its sub-agents.
        let mut of_tree: Vec<_> = global.iter().flat_map(Bundle::named_tools).collect();
        of_tree.extend(around.agent.named_tools());
        named_tools::check(of_tree.iter().cloned(), &all)?;
        let rules = rules.as_deref();
        let tools = tool_set.clone();
        // Always ready: a call waits for its own tool inside.
        let tools = BoxTool::internal(move |request| tools.make(request));
        let output_key = self.options.output_key.clone();
        let agent = loop_state::service(LoopConfig {
            model: around.model.in_agent(self.model, rules),
            tools: around.tool.in_agent(tools, rules),
            tool_set,
            outline: outline.clone(),
            options: self.options,
        });
        let stack = around.agent.in_agent(agent, rules);
        let mut brought = [named, of_tree].concat();
        // Checked again at the start of each run, which has to bring them.
        brought.retain(|named| named.as_agent || self.tools_of_runs.contains(&named.tool));
        Ok(Agent::new(AgentInner {
            max_iterations: self.max_iterations,
            known_tools: KnownTools { all, brought },
            explanation: outline.explain(&None, None),
            outline,
            gives_one_answer: true,
            output_key,
            stack,
        }))
    }

    fn outline(&self) -> Outline {
        Outline {
            shell: self.shell.clone(),
            body: Explained::Loop {
                max_iterations: self.max_iterations,
                model: Target::new(self.model_name.clone()),
                tool_concurrency: self.options.tool_concurrency,
                around_tools: Vec::new(),
                tools: self.tools.iter().map(Target::tool).collect(),
                sub_agents: Vec::new(),
            },
            inside: self.options.sub_agents.iter().map(Agent::outline).collect(),
            in_tools: self.tools.iter().map(Outline::of_tool).collect(),
        }
    }
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outline = self.outline();
        write!(f, "AgentBuilder({})", outline.explain(&None, None))
    }
}
