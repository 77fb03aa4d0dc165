//! Notes about model calls that do not begin with what the call before has sent.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// A model call whose request does not begin with what the last one of the same call of its agent
/// has sent, in [`EventKind::PrefixChanged`](super::EventKind::PrefixChanged): what a provider has
/// cached of it ends there.
///
/// The requests are compared as they reach the model, behind all callbacks and layers. It says
/// which part differs and who has changed it, and contains nothing of what is in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PrefixNote {
    /// The number of the turn in its agent, from 0.
    pub iteration: u32,
    /// The attempts at the call that had [failed](super::EventKind::AttemptFailed) before.
    pub attempt: u32,
    /// The first part of the prompt that differs.
    pub changed: PromptPart,
    /// The place of the band or the layer that has changed it in the stack around the call, as in
    /// [`WrapperNote::index`](super::WrapperNote::index). `None` if it had changed outside of all
    /// of them, as by the agent itself, and if the calls passed other ones.
    pub wrapper: Option<u32>,
    /// The names of the callbacks of that band, in order, or that of the layer in brackets. It may
    /// be what it did in the call before, and not in this one.
    pub changed_by: Vec<String>,
}

/// A part of a prompt, in the order in which providers build one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PromptPart {
    /// The setting with this name.
    Setting(&'static str),
    /// The tool with this name: changed, moved, added or removed.
    Tool(Arc<str>),
    /// The instructions.
    Instructions,
    /// The message with this index: changed or removed.
    Message(usize),
}

impl fmt::Display for PrefixNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changed", self.changed)?;
        if !self.changed_by.is_empty() {
            write!(f, ", by {}", self.changed_by.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for PromptPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(name) => write!(f, "the setting `{name}`"),
            Self::Tool(name) => write!(f, "the tool `{name}`"),
            Self::Instructions => f.write_str("the instructions"),
            Self::Message(index) => write!(f, "the message {index}"),
        }
    }
}
