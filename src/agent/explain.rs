use std::fmt;

use serde::Serialize;

use crate::call::CallKind;
use crate::stream::{Event, EventKind};
use crate::tool::{Effect, Tool};

/// The structure of an agent, from the outside in, as data.
///
/// The names are those of [`CallbackNote`](crate::stream::CallbackNote)s and
/// [`Invocation`](crate::stream::Invocation)s. Its `Display` lists the callbacks and layers around
/// each call in order, indented by one step for each wrapper: the names of a band's callbacks on
/// one line, the type of a layer in brackets. Agents inside it are listed in place, with the
/// callbacks of the whole tree.
///
/// ```
/// use tower_agent::agent::{Explained, Wrapper};
/// use tower_agent::callback::before_model;
/// use tower_agent::{Agent, BoxError};
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// # fn main() -> Result<(), BoxError> {
/// let agent = Agent::builder(ScriptedModel::always(Turn::from_text("Yes.")))
///     .on_model(before_model(|_| ()).named("brief"))
///     .build()?;
///
/// let Explained::Loop { model, .. } = &agent.explain().body else { unreachable!() };
/// assert_eq!(model.around, [Wrapper::Callbacks(vec!["brief".to_owned()])]);
/// assert_eq!(serde_json::to_value(agent.explain())?["agent"], "agent");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The agent's name.
    pub agent: String,
    /// The callbacks and layers around the agent's call, outermost first.
    pub around: Vec<Wrapper>,
    /// The part of the agent that they surround.
    pub body: Explained,
}

/// Something around a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Wrapper {
    /// A band of callbacks, by their names, in order.
    Callbacks(Vec<String>),
    /// A layer, by its type or the name of a wrap.
    Layer(String),
}

/// The inside of an agent or a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Explained {
    /// The loop of an agent.
    #[non_exhaustive]
    Loop {
        /// The maximum number of model calls.
        max_iterations: u32,
        /// The model, with what is around its calls.
        model: Target,
        /// The number of tool calls of a turn that run at the same time.
        tool_concurrency: usize,
        /// The callbacks and layers around the calls of all tools, outermost first.
        around_tools: Vec<Wrapper>,
        /// The tools, each with its own layers.
        tools: Vec<Target>,
        /// The agents that the conversation may be transferred to.
        sub_agents: Vec<Explanation>,
    },
    /// A team.
    #[non_exhaustive]
    Team {
        /// The order in which its members run, in words.
        plan: String,
        /// The members.
        members: Vec<Explanation>,
    },
}

/// A model or a tool, with what is around its calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Target {
    /// The callbacks and layers, outermost first.
    pub around: Vec<Wrapper>,
    /// The type of the model, or the name of the tool.
    pub name: String,
    /// The tool is [a part of how the agent works](crate::tool::ToolDeclaration::part_of_loop).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_part_of_loop: bool,
    /// The effect of a call of the tool; `None` of a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
    /// The agent that [implements the tool](crate::Agent::into_tool).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<Explanation>>,
}

impl Wrapper {
    /// Creates the wrappers from the names of a stack's parts, in which a layer is in brackets.
    pub(super) fn of_parts(parts: Vec<Vec<String>>) -> Vec<Self> {
        let wrapper = |names: Vec<String>| {
            let layer = match &names[..] {
                [name] => name
                    .strip_prefix('[')
                    .and_then(|name| name.strip_suffix(']')),
                _ => None,
            };
            match layer {
                Some(layer) => Self::Layer(layer.to_owned()),
                None => Self::Callbacks(names),
            }
        };
        parts.into_iter().map(wrapper).collect()
    }
}

impl Target {
    /// Describes something with nothing around it.
    pub(super) fn new(name: String) -> Self {
        Self {
            around: Vec::new(),
            name,
            is_part_of_loop: false,
            effect: None,
            agent: None,
        }
    }

    /// Describes a tool inside its layers.
    pub(super) fn tool(tool: &Tool) -> Self {
        let layers = tool.layers().iter();
        let declaration = tool.declaration();
        Self {
            around: Wrapper::of_parts(layers.map(|layer| layer.names.clone()).collect()),
            is_part_of_loop: declaration.is_part_of_loop(),
            effect: Some(declaration.effect()),
            ..Self::new(declaration.name().to_owned())
        }
    }

    fn write(&self, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inside = write_stack(&self.around, depth, f)?;
        write_line(&self.name, inside, f)?;
        match &self.agent {
            Some(agent) => agent.write(inside + 1, f),
            None => Ok(()),
        }
    }
}

impl Explanation {
    /// Returns the wrapper that an event is about: a [`WrapperNote`](crate::stream::WrapperNote),
    /// or a [`CallbackNote`](crate::stream::CallbackNote) that names one. `None` for another event,
    /// and for one of an agent that is not in this explanation, such as one that a function runs.
    ///
    /// In a run that brings callbacks or layers, take the explanation
    /// [for its request](crate::Agent::explain_for). A bundle that
    /// [is idle](crate::callback::Bundle::idle_when) has no place in a run: where there are such,
    /// compare the names.
    #[must_use]
    pub fn wrapper_of(&self, event: &Event) -> Option<&Wrapper> {
        let (call, index) = match &event.kind {
            EventKind::Wrapper(note) => (note.call, note.index),
            EventKind::Callback(note) => (note.call, note.wrapper?),
            _ => return None,
        };
        let mut path = event.invocation.path.split('/');
        let mut explanation = Some(self).filter(|agent| path.next() == Some(&agent.agent))?;
        for name in path {
            let mut inside = explanation.inside().into_iter();
            explanation = inside.find(|agent| agent.agent == name)?;
        }
        let around = explanation.around(call);
        around.get(usize::try_from(index).ok()?)
    }

    /// Returns what is around its calls of a kind, outermost first.
    pub(super) fn around(&self, call: CallKind) -> &[Wrapper] {
        match (call, &self.body) {
            (CallKind::Agent, _) => &self.around,
            (CallKind::Model, Explained::Loop { model, .. }) => &model.around,
            (CallKind::Tool, Explained::Loop { around_tools, .. }) => around_tools,
            _ => &[],
        }
    }

    /// Returns the agents inside this one: those that the conversation goes on with, and those that
    /// are used as tools.
    pub(super) fn inside(&self) -> Vec<&Self> {
        match &self.body {
            Explained::Loop { sub_agents, .. } => {
                sub_agents.iter().chain(self.in_tools()).collect()
            }
            Explained::Team { members, .. } => members.iter().collect(),
        }
    }

    /// Returns the agents that are used as tools.
    pub(super) fn in_tools(&self) -> impl Iterator<Item = &Self> {
        let tools = match &self.body {
            Explained::Loop { tools, .. } => tools.as_slice(),
            Explained::Team { .. } => &[],
        };
        tools.iter().filter_map(|tool| tool.agent.as_deref())
    }

    fn write(&self, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(format_args!("agent `{}`", self.agent), depth, f)?;
        let inside = write_stack(&self.around, depth + 1, f)?;
        match &self.body {
            Explained::Loop {
                max_iterations,
                model,
                tool_concurrency,
                around_tools,
                tools,
                sub_agents,
            } => {
                let limit = format_args!("loop of at most {max_iterations} model calls");
                write_line(limit, inside, f)?;
                write_line("model call", inside + 1, f)?;
                model.write(inside + 2, f)?;
                let at_once = format_args!("tool calls, {tool_concurrency} at a time");
                write_line(at_once, inside + 1, f)?;
                let place = write_stack(around_tools, inside + 2, f)?;
                for tool in tools {
                    tool.write(place, f)?;
                }
                if !sub_agents.is_empty() {
                    write_line("may transfer to", inside + 1, f)?;
                }
                for agent in sub_agents {
                    agent.write(inside + 2, f)?;
                }
            }
            Explained::Team { plan, members } => {
                write_line(plan, inside, f)?;
                for member in members {
                    member.write(inside + 1, f)?;
                }
            }
        }
        Ok(())
    }
}

/// Writes a stack; returns the depth inside it.
fn write_stack(
    stack: &[Wrapper],
    depth: usize,
    f: &mut fmt::Formatter<'_>,
) -> Result<usize, fmt::Error> {
    for (level, wrapper) in stack.iter().enumerate() {
        write_line(wrapper, depth + level, f)?;
    }
    Ok(depth + stack.len())
}

fn write_line(text: impl fmt::Display, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{:1$}{text}", "", depth * 2)
}

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Callbacks(names) => f.write_str(&names.join(", ")),
            Self::Layer(name) => write!(f, "[{name}]"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(0, f)
    }
}
