//! Builds the agents of a program.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use test_support::log::Log;
use tower_agent::callback::{
    Bundle, after_agent, after_model, after_tool, before_agent, before_model, before_tool,
    on_model_error, on_tool_error,
};
use tower_agent::compat::Semantics;
use tower_agent::error::ResolutionOutcome;
use tower_agent::message::ToolCall;
use tower_agent::{
    Action, Agent, AgentBuilder, AgentResponse, Callbacks, Error, ErrorKind, Interrupt, Message,
    ModelResponse, Part, Recovery, Request, Result, Role, RunContext, Tool, ToolRequest,
    ToolResponse,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use super::Plugin;
use super::seen::Asked;

/// An agent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    name: String,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    description: String,
    #[serde(default)]
    instruction: Option<String>,
    /// What the model says, one entry for each call.
    #[serde(default)]
    says: Vec<Value>,
    #[serde(default)]
    tools: Vec<String>,
    #[serde(default)]
    agents: Vec<Spec>,
    #[serde(default)]
    agent_tools: Vec<Spec>,
    #[serde(default)]
    hooks: BTreeMap<String, Vec<Option<Do>>>,
    #[serde(default)]
    output_key: Option<String>,
    /// It reads the current turn alone.
    #[serde(default)]
    alone: bool,
    #[serde(default)]
    no_parent: bool,
    #[serde(default)]
    no_peers: bool,
    /// Of a loop.
    #[serde(default)]
    rounds: u32,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Llm,
    Sequential,
    Parallel,
    Loop,
}

/// What a callback does, after it has written down that it ran.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Do {
    /// It answers with this text, in which `{key}` is a value of the state.
    say: Option<String>,
    /// It answers as a model does that says this.
    says: Option<Value>,
    /// It answers for a tool.
    answer: Option<Value>,
    /// It changes the arguments of a call.
    args: Map<String, Value>,
    /// It adds to the instructions.
    add: Option<String>,
    set: Map<String, Value>,
    escalate: bool,
    fail: Option<String>,
}

impl Do {
    fn act(&self, log: &Log, at: &str, context: &RunContext) -> Result<()> {
        log.note(at);
        for (key, value) in &self.set {
            context.state().set(key, value.clone());
        }
        if self.escalate {
            context.escalate();
        }
        match &self.fail {
            Some(why) => Err(Error::new(ErrorKind::Other, why.clone())),
            None => Ok(()),
        }
    }

    fn text(&self, context: &RunContext) -> Option<String> {
        self.say
            .as_ref()
            .map(|say| context.state().fill(say).unwrap())
    }

    fn of_agent(&self, context: &RunContext) -> Action<AgentResponse> {
        match self.text(context) {
            Some(text) => Action::Respond(AgentResponse::new([Message::assistant(text)])),
            None => Action::Continue,
        }
    }

    fn of_model(&self, context: &RunContext) -> Option<ModelResponse> {
        let says = self
            .says
            .as_ref()
            .map(|says| ModelResponse::new(message(says)));
        says.or_else(|| self.text(context).map(ModelResponse::from_text))
    }

    fn of_tool(&self) -> Option<ToolResponse> {
        self.answer.clone().map(ToolResponse::new)
    }
}

fn action<T>(response: Option<T>) -> Action<T> {
    response.map_or(Action::Continue, Action::Respond)
}

fn recovery<T>(response: Option<T>) -> Recovery<T> {
    response.map_or(Recovery::Propagate, Recovery::Fallback)
}

/// Returns the message of a model that says this.
fn message(says: &Value) -> Message {
    let parts = match says {
        Value::Array(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let parts = parts.iter().enumerate().map(|(index, part)| {
        let (name, arguments) = match part {
            Value::String(text) => return Part::from_text(text.as_str()),
            part if !part["transfer"].is_null() => (
                "transfer_to_agent",
                json!({ "agent_name": part["transfer"] }),
            ),
            part => {
                let arguments = part["args"].as_object().cloned().unwrap_or_default();
                (part["call"].as_str().unwrap(), Value::Object(arguments))
            }
        };
        Part::ToolCall(ToolCall::new(format!("call_{index}"), name, arguments))
    });
    Message::new(Role::Assistant, parts)
}

fn turn(says: &Value) -> Turn {
    match says["error"].as_str() {
        Some(error) => Turn::error(Error::new(ErrorKind::Provider, error.to_owned())),
        None => Turn::response(ModelResponse::new(message(says))),
    }
}

/// The agents of a program.
#[derive(Default)]
pub(super) struct Agents {
    pub(super) log: Log,
    models: BTreeMap<String, ScriptedModel>,
}

/// Adds callbacks to the builder of an agent, of a team, or to a bundle.
macro_rules! add_agent_hooks {
    ($self:expr, $builder:expr, $owner:expr, $hooks:expr) => {{
        let mut builder = $builder;
        for (at, kind, does) in $self.hooks($owner, $hooks) {
            let log = $self.log.clone();
            builder = match kind {
                "before_agent" => builder.on_agent(before_agent(move |request| {
                    does.act(&log, &at, request.context())?;
                    Ok(does.of_agent(request.context()))
                })),
                "after_agent" => builder.on_agent(after_agent(move |request, _| {
                    does.act(&log, &at, request.context())?;
                    Ok(does.of_agent(request.context()))
                })),
                _ => builder,
            };
        }
        builder
    }};
}

macro_rules! add_hooks {
    ($self:expr, $builder:expr, $owner:expr, $hooks:expr) => {{
        let mut builder = add_agent_hooks!($self, $builder, $owner, $hooks);
        for (at, kind, does) in $self.hooks($owner, $hooks) {
            let log = $self.log.clone();
            let at_tool = {
                let at = at.clone();
                move |request: &ToolRequest| format!("{at} {}", request.name())
            };
            builder = match kind {
                "before_model" => builder.on_model(before_model(move |request| {
                    does.act(&log, &at, request.context())?;
                    if let Some(more) = &does.add {
                        request.add_instructions(more);
                    }
                    Ok(action(does.of_model(request.context())))
                })),
                "after_model" => builder.on_model(after_model(move |request, _| {
                    does.act(&log, &at, request.context())?;
                    Ok(action(does.of_model(request.context())))
                })),
                "on_model_error" => builder.on_model(on_model_error(move |request, _| {
                    does.act(&log, &at, request.context())?;
                    Ok(recovery(does.of_model(request.context())))
                })),
                "before_tool" => builder.on_tool(before_tool(move |request| {
                    does.act(&log, &at_tool(request), request.context())?;
                    for (key, value) in &does.args {
                        request.arguments_mut()[key] = value.clone();
                    }
                    Ok(action(does.of_tool()))
                })),
                "after_tool" => builder.on_tool(after_tool(move |request, _| {
                    does.act(&log, &at_tool(request), request.context())?;
                    Ok(action(does.of_tool()))
                })),
                "on_tool_error" => builder.on_tool(on_tool_error(move |request, _| {
                    does.act(&log, &at_tool(request), request.context())?;
                    Ok(recovery(does.of_tool()))
                })),
                _ => builder,
            };
        }
        builder
    }};
}

impl Agents {
    /// Builds the root of the tree.
    pub(super) fn root(&mut self, spec: &Spec, plugins: &[Plugin]) -> Agent {
        let bundles = plugins.iter().map(|plugin| {
            let mut hooks = BTreeMap::new();
            for (kind, does) in &plugin.hooks {
                hooks.insert(kind.clone(), vec![does.clone()]);
            }
            add_hooks!(self, Bundle::new(), &plugin.name, &hooks)
        });
        let bundles: Vec<_> = bundles.collect();
        self.agent(spec, bundles)
    }

    /// Returns the requests of each model.
    pub(super) fn requests(&self) -> BTreeMap<String, Vec<Asked>> {
        let requests = self.models.iter().map(|(name, model)| {
            let asked = model.requests().iter().map(Asked::of).collect();
            (name.clone(), asked)
        });
        requests.collect()
    }

    fn hooks<'a>(
        &self,
        owner: &str,
        hooks: &'a BTreeMap<String, Vec<Option<Do>>>,
    ) -> Vec<(String, &'a str, Do)> {
        let hooks = hooks.iter().flat_map(|(kind, all)| {
            all.iter().enumerate().map(move |(number, does)| {
                let number = match number {
                    0 => String::new(),
                    number => format!(".{number}"),
                };
                let at = format!("{owner}.{kind}{number}");
                (at, kind.as_str(), does.clone().unwrap_or_default())
            })
        });
        hooks.collect()
    }

    fn agent(&mut self, spec: &Spec, plugins: Vec<Bundle>) -> Agent {
        let team = match spec.kind {
            Kind::Llm => return self.llm(spec, plugins),
            Kind::Sequential => Agent::sequential(&*spec.name),
            Kind::Parallel => Agent::parallel(&*spec.name),
            Kind::Loop => Agent::repeat(&*spec.name, spec.rounds),
        };
        let mut team = team
            .semantics(Semantics::adk_python())
            .description(&*spec.description);
        for plugin in plugins {
            team = team.global_callbacks(plugin);
        }
        for member in &spec.agents {
            team = team.agent(self.agent(member, Vec::new()));
        }
        add_agent_hooks!(self, team, &spec.name, &spec.hooks)
            .build()
            .unwrap()
    }

    fn llm(&mut self, spec: &Spec, plugins: Vec<Bundle>) -> Agent {
        let model = ScriptedModel::new(spec.says.iter().map(turn));
        self.models.insert(spec.name.clone(), model.clone());
        let mut agent: AgentBuilder = Agent::builder(model)
            .name(&*spec.name)
            .semantics(Semantics::adk_python())
            .description(&*spec.description)
            .tools(spec.tools.iter().map(|name| tool(name)));
        if let Some(instruction) = &spec.instruction {
            agent = agent.instructions(&**instruction);
        }
        for plugin in plugins {
            agent = agent.global_callbacks(plugin);
        }
        for inner in &spec.agent_tools {
            agent = agent.tool(self.agent(inner, Vec::new()).into_tool("Helps."));
        }
        for inner in &spec.agents {
            agent = agent.sub_agent(self.agent(inner, Vec::new()));
        }
        if let Some(key) = &spec.output_key {
            agent = agent.output_key(&**key);
        }
        if spec.alone {
            agent = agent.without_history();
        }
        if spec.no_parent {
            agent = agent.transfer_to_parent(false);
        }
        if spec.no_peers {
            agent = agent.transfer_to_peers(false);
        }
        add_hooks!(self, agent, &spec.name, &spec.hooks)
            .build()
            .unwrap()
    }
}

/// Returns the tool with this name.
fn tool(name: &str) -> Tool {
    match name {
        "look" => Tool::function(name, "Looks.", |_: Value| json!({ "found": "it" })),
        "mark" => Tool::function_with(name, "Marks.", |arguments: Value, call: ToolRequest| {
            let value = arguments["value"].clone();
            call.context().state().set("mark", value.clone());
            std::future::ready(json!({ "marked": value }))
        }),
        "fail" => Tool::function(name, "Fails.", |_: Value| {
            Err::<Value, _>(Error::new(ErrorKind::Tool, "broken"))
        }),
        "leave" => Tool::function_with(name, "Leaves.", |_: Value, call: ToolRequest| {
            call.context().escalate();
            std::future::ready(json!({ "left": true }))
        }),
        "wait" => Tool::function_with(name, "Waits.", |_: Value, call: ToolRequest| {
            std::future::ready(answered(&call))
        }),
        "pay" => Tool::function(name, "Pays.", |_: Value| json!({ "paid": true }))
            .layer(Callbacks::new().with(Approval::when(|_| true))),
        other => panic!("no tool {other}"),
    }
}

/// Returns the result of a call that comes later, from outside.
fn answered(call: &ToolRequest) -> Result<Value> {
    let answer = call.ask(Interrupt::new("result", "long-running"))?;
    match answer.outcome {
        ResolutionOutcome::Resolved(value) => Ok(value),
        _ => Ok(Value::Null),
    }
}
