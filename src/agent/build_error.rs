use std::borrow::Cow;
use std::sync::Arc;

use crate::tool::InvalidTool;

/// The agent cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two tools have the same name, or a provider would reject one.
    #[error(transparent)]
    Tool(#[from] InvalidTool),
    /// The agent's name is invalid.
    #[error("invalid agent name `{0}`: a name must not be empty or contain `/`")]
    Name(Arc<str>),
    /// `tool_concurrency` is 0.
    #[error("`tool_concurrency` must be at least 1")]
    NoToolConcurrency,
    /// Two members of a team, or two sub-agents, have the same name.
    #[error("duplicate agent name `{0}`; rename one of the agents")]
    DuplicateAgent(Arc<str>),
    /// A callback names a tool that does not exist.
    #[error(
        "`{by}` names tool `{tool}`, which does not exist; {}; declare tools that come with a run \
         with `tools_of_runs`",
        if .known.is_empty() { "there are no tools".into() } else { format!("available tools: {}", .known.join(", ")) }
    )]
    UnknownTool {
        /// The name of the callback.
        by: Cow<'static, str>,
        /// The tool that it names.
        tool: Arc<str>,
        /// The existing tools.
        known: Vec<Arc<str>>,
    },
    /// A callback takes a tool for an agent, and it is none.
    #[error(
        "`{by}` takes tool `{tool}` for an agent of the run, and it is none: declare what it is, or \
         make the tool with `Agent::into_tool`"
    )]
    NotAnAgent {
        /// The name of the callback.
        by: Cow<'static, str>,
        /// The tool that it names.
        tool: Arc<str>,
    },
    /// One agent has a journal, which does not see the calls of its sub-agents.
    #[error(
        "agent `{0}` has a journal of its own, which its sub-agents lack; pass it to \
         `global_callbacks`"
    )]
    NotDurable(Arc<str>),
    /// The team has no members.
    #[error("team `{0}` has no members; add them with `agent`")]
    NoMembers(Arc<str>),
    /// The team may run no member at all.
    #[error("the `concurrency` of team `{0}` must be at least 1")]
    NoConcurrency(Arc<str>),
    /// The team runs in turn and has settings of a parallel one.
    #[error("team `{0}` runs in turn: `concurrency` and `allow_failures` are for a parallel team")]
    NotParallel(Arc<str>),
    /// The team runs one agent for each task, and more members were added.
    #[error("team `{0}` runs one agent for each task and has no other members")]
    OneWorker(Arc<str>),
    /// The team has no rounds.
    #[error("team `{0}` must have at least 1 round")]
    NoRounds(Arc<str>),
}
