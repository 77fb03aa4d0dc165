//! The kinds of calls, and the origins of responses.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// The kind of a call. It serialises as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallKind {
    /// A call of an agent or a team.
    Agent,
    /// A call of a model.
    Model,
    /// A call of a tool.
    Tool,
    /// A call defined outside this crate, by name.
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

impl Serialize for CallKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The origin of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The innermost service returned it.
    #[default]
    Service,
    /// A `before` responded instead of the service.
    Before,
    /// An `after` replaced the service's response.
    After,
    /// An `on_error` responded for a failed call.
    Fallback,
    /// A layer replayed the response of another call: nothing was used for this one.
    Replay,
}
