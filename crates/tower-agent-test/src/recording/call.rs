use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_agent::call::Request;

/// A call as data: what it is, and its request.
///
/// Calls are matched by their kind and path, and then by their request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RecordedCall {
    /// The place and the kind of the call.
    #[serde(flatten)]
    pub site: Site,
    /// The request.
    pub request: Value,
}

/// A call without its request, as errors name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Site {
    /// The kind of call.
    #[serde(rename = "call")]
    pub kind: String,
    /// The name of what is called, for errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The agents and tool calls that contain the call, as
    /// [`call_path`](tower_agent::RunContext::call_path) names them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
}

impl RecordedCall {
    /// Creates a call.
    #[must_use]
    pub fn new(kind: impl Into<String>, request: Value) -> Self {
        let site = Site {
            kind: kind.into(),
            name: None,
            path: String::new(),
        };
        Self { site, request }
    }

    /// Sets the name of what is called.
    #[must_use]
    pub fn with_name(mut self, name: impl Into<String>) -> Self {
        self.site.name = Some(name.into());
        self
    }
}

impl Site {
    /// Returns the site of a call, as the layer names it.
    #[must_use]
    pub fn of<R: Request>(request: &R) -> Self {
        Self {
            kind: R::CALL.to_string(),
            name: request.name().map(str::to_owned),
            path: request.context().call_path(),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} call", self.kind)?;
        if let Some(name) = &self.name {
            write!(f, " `{name}`")?;
        }
        match &*self.path {
            "" => Ok(()),
            path => write!(f, " at `{path}`"),
        }
    }
}
