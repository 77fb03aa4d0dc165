//! Which call, and where its answer came from.

use std::fmt;

/// Which of an agent's calls a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallKind {
    /// The agent loop, or an agent made of agents.
    Agent,
    /// One call of a model.
    Model,
    /// One call of a tool.
    Tool,
    /// A call defined outside this crate, by its name.
    Other(&'static str),
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Other(name) => name,
        })
    }
}

/// Where a response came from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The service at the bottom of the stack made it.
    #[default]
    Service,
    /// A `before` answered in the service's place.
    Before,
    /// An `after` replaced what the service said.
    After,
    /// An `on_error` answered for a call that had failed.
    Fallback,
}
