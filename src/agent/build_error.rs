use std::borrow::Cow;
use std::sync::Arc;

use crate::tool::InvalidTool;

/// The agent cannot be built as described.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Two tools have the same name, or a provider would refuse one.
    #[error(transparent)]
    Tool(#[from] InvalidTool),
    /// The agent's name cannot stand in a path.
    #[error("an agent cannot be named `{0}`: a name is not empty and has no `/`")]
    Name(Arc<str>),
    /// No tool could ever run.
    #[error("`tool_concurrency` is 0, so no tool could ever run; let it be 1 at least")]
    NoToolConcurrency,
    /// Two members of a team, or two sub-agents, have the same name.
    #[error("there are two agents named `{0}` in one place; give one of them another name")]
    DuplicateAgent(Arc<str>),
    /// A callback or a layer names a tool that does not exist.
    #[error(
        "`{by}` is for a tool `{tool}`, which does not exist; there {}; name a tool that comes with \
         a run by `tools_of_runs`",
        if .known.is_empty() { "are no tools".into() } else { format!("are: {}", .known.join(", ")) }
    )]
    UnknownTool {
        /// The callback or the layer.
        by: Cow<'static, str>,
        /// The tool that it names.
        tool: Arc<str>,
        /// The tools that there are.
        known: Vec<Arc<str>>,
    },
    /// A team of nobody.
    #[error("the team `{0}` has no members; add them with `agent`")]
    NoMembers(Arc<str>),
    /// A team that repeats nothing.
    #[error(
        "the team `{0}` repeats for 0 rounds, so no member could ever run; let it be 1 at least"
    )]
    NoRounds(Arc<str>),
}
