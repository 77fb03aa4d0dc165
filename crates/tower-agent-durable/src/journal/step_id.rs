use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tower_agent_conversations::{StoreError, to_json};

/// The name of a step of a run. It depends on the place of the step in the run, not on time, so a
/// run that is started again gives a step the same name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepId {
    /// The run.
    pub run: Arc<str>,
    /// The number of the request: 1 for the one that started the run, and one more for each that
    /// resumed it. For a tool call and its values, which may stay open during several requests, the
    /// number of the one that began the conversation.
    pub input: u32,
    /// The [path](tower_agent::RunContext::step_path) of the agents and tool calls that contain it.
    pub path: Arc<str>,
    /// The turn of the agent. 0 for a tool call and its values, whose path names the call.
    pub iteration: u32,
    /// The kind of step.
    pub kind: StepKind,
    /// The number of earlier steps of the same kind at the same place. 0 for a tool call.
    pub nth: u32,
}

/// The kind of a step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StepKind {
    /// A model call.
    Model,
    /// A tool call, with the name of the tool.
    Tool(Arc<str>),
    /// A [value](super::Durable::value), with its name.
    Value(Arc<str>),
}

/// A step as it is stored with its run: an array, since each step has one.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Serialize, Deserialize)]
struct StoredId(Arc<str>, StepKind, u32, u32, u32);

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl StepId {
    /// Returns the JSON with which the step is stored beside its run.
    pub(super) fn stored(&self) -> Result<String, StoreError> {
        let Self {
            run: _,
            input,
            path,
            iteration,
            kind,
            nth,
        } = self;
        to_json(&StoredId(
            path.clone(),
            kind.clone(),
            *input,
            *iteration,
            *nth,
        ))
    }

    /// Reads a step of this run.
    pub(super) fn of_stored(run: &str, stored: &str) -> Result<Self, StoreError> {
        let StoredId(path, kind, input, iteration, nth) =
            serde_json::from_str(stored).map_err(StoreError::data)?;
        Ok(Self {
            run: run.into(),
            input,
            path,
            iteration,
            kind,
            nth,
        })
    }
}

impl StepId {
    /// Returns a text that no other step of the run has.
    #[must_use]
    pub fn key(&self) -> String {
        let Self {
            input,
            path,
            iteration,
            kind,
            nth,
            ..
        } = self;
        // Not by `format!`, which takes four times as long: each step has several keys.
        let [mut input_digits, mut iteration_digits, mut nth_digits] = [itoa::Buffer::new(); 3];
        let input = input_digits.format(*input);
        let iteration = iteration_digits.format(*iteration);
        let nth = nth_digits.format(*nth);
        match kind {
            StepKind::Model => [input, " ", iteration, " ", nth, " model ", path].concat(),
            // The path ends with the id of the call, which is enough.
            StepKind::Tool(_) => [input, " tool ", path].concat(),
            // Quoted, so that a name with spaces cannot run into the path.
            StepKind::Value(name) => format!("{input} {iteration} {nth} value {name:?} {path}"),
        }
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            run,
            path,
            iteration,
            kind,
            nth,
            ..
        } = self;
        match kind {
            StepKind::Model => write!(f, "model call {iteration} of `{path}`")?,
            StepKind::Tool(tool) => write!(f, "call of `{tool}` at `{path}`")?,
            StepKind::Value(name) => write!(f, "value `{name}` in turn {iteration} of `{path}`")?,
        }
        if *nth > 0 {
            write!(f, ", repeated {nth} times")?;
        }
        write!(f, " in run `{run}`")
    }
}
