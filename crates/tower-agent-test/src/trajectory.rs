use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use tower_agent::AgentResponse;
use tower_agent::message::{Arguments, Message, Part};
use tower_agent::stream::{Event, EventKind};

/// The tool calls of a run, in order, to assert on. The assertions panic with the whole trajectory.
///
/// ```
/// use serde_json::json;
/// use tower_agent::{Agent, Tool};
/// use tower_agent_test::{ScriptedModel, Trajectory, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let model = ScriptedModel::new([
///     Turn::tool("search", json!({ "value": "Rome" })),
///     Turn::tool("book", json!({ "value": "Hotel Roma" })),
///     Turn::from_text("Booked."),
/// ]);
/// let agent = Agent::builder(model)
///     .tool(Tool::function("search", "Searches.", |_: String| "Hotel Roma"))
///     .tool(Tool::function("book", "Books.", |_: String| "done"))
///     .build()?;
///
/// let response = agent.run("Book a hotel in Rome.").await?;
/// Trajectory::of(&response)
///     .assert_called_before("search", "book")
///     .assert_called_at_most("search", 2)
///     .assert_called_with("book", |arguments| arguments["value"] == "Hotel Roma")
///     .assert_never_called("cancel");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trajectory {
    calls: Vec<Step>,
}

/// A tool call of a [`Trajectory`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Step {
    /// The names of the agents from the root to the one that made the call, joined by `/`. Empty in
    /// the trajectory of a transcript, which does not name them.
    pub agent: Arc<str>,
    /// The id of the call.
    pub id: Arc<str>,
    /// The name of the tool.
    pub tool: Arc<str>,
    /// The arguments from the model.
    pub arguments: Arguments,
    /// The text of the result, or `None` if the call has none.
    pub result: Option<String>,
    /// The tool refused or failed.
    pub is_error: bool,
}

/// A call that is put together from events.
struct StreamedCall {
    /// The id of the call in the stream.
    id: Arc<str>,
    message: Arc<str>,
    arguments: String,
    step: Step,
}

impl Step {
    fn new(agent: Arc<str>, id: Arc<str>, tool: Arc<str>) -> Self {
        let arguments = Arguments::default();
        Self {
            agent,
            id,
            tool,
            arguments,
            result: None,
            is_error: false,
        }
    }
}

impl Trajectory {
    /// Returns the calls of a run's new messages. Those inside of agents used as tools are not in
    /// its transcript: see [`of_events`](Self::of_events).
    #[must_use]
    pub fn of(response: &AgentResponse) -> Self {
        Self::of_messages(response.new_messages())
    }

    /// Returns the calls of a transcript.
    #[must_use]
    pub fn of_messages<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Self {
        let mut calls: Vec<Step> = Vec::new();
        for part in messages.into_iter().flat_map(Message::parts) {
            match part {
                Part::ToolCall(call) => calls.push(Step {
                    arguments: call.arguments.clone(),
                    ..Step::new("".into(), call.id.clone(), call.name.clone())
                }),
                Part::ToolResult(result) => {
                    // Ids may repeat in a long conversation: a result belongs to the latest call.
                    if let Some(step) = calls.iter_mut().rfind(|step| step.id == result.call_id) {
                        step.result = Some(result.text());
                        step.is_error = result.is_error;
                    }
                }
                _ => {}
            }
        }
        Self { calls }
    }

    /// Returns the calls of a stream's events, those of all sub-agents included, without responses
    /// that were discarded or replaced.
    #[must_use]
    pub fn of_events<'e>(events: impl IntoIterator<Item = &'e Event>) -> Self {
        let mut calls: Vec<StreamedCall> = Vec::new();
        for Event {
            invocation, kind, ..
        } in events
        {
            match kind {
                EventKind::ToolCallStart(call) => calls.push(StreamedCall {
                    id: call.id.clone(),
                    message: call.message.clone(),
                    arguments: String::new(),
                    step: Step::new(
                        invocation.path.clone(),
                        call.call_id.clone(),
                        call.name.clone(),
                    ),
                }),
                EventKind::ToolCallDelta { id, json } => {
                    // From the end: deltas belong to one of the latest calls.
                    if let Some(call) = calls.iter_mut().rfind(|call| call.id == *id) {
                        call.arguments.push_str(json);
                    }
                }
                EventKind::ToolResult(result) => {
                    if let Some(call) = calls.iter_mut().rfind(|call| call.id == result.id) {
                        let text = result.parts.iter().filter_map(Part::as_text).collect();
                        call.step.result = Some(text);
                        call.step.is_error = result.is_error;
                    }
                }
                EventKind::AttemptDiscarded { message, .. }
                | EventKind::ResponseReplaced { message } => {
                    // The output of a discarded message was taken back, and its calls never ran.
                    calls.retain(|call| call.message != *message);
                }
                // Whatever says nothing of a tool call.
                _ => {}
            }
        }
        let calls = calls.into_iter().map(|call| Step {
            arguments: Arguments::from_text(call.arguments),
            ..call.step
        });
        Self {
            calls: calls.collect(),
        }
    }

    /// Returns the calls, in the order in which the models made them.
    #[must_use]
    pub fn calls(&self) -> &[Step] {
        &self.calls
    }

    /// Returns the calls of one agent and its sub-agents, by the [path](Step::agent) of the agent.
    #[must_use]
    pub fn within(&self, agent: &str) -> Self {
        let within = self.calls.iter().filter(|step| {
            // The name must end there: `team/a` is not within `team/ab`.
            let below = step.agent.strip_prefix(agent);
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        });
        Self {
            calls: within.cloned().collect(),
        }
    }

    /// Asserts that a tool was called.
    #[track_caller]
    pub fn assert_called(&self, tool: &str) -> &Self {
        assert!(self.count(tool) > 0, "`{tool}` was not called; {self}");
        self
    }

    /// Asserts that a tool was called, and that its first call is before the first call of another.
    /// The other need not have been called.
    #[track_caller]
    pub fn assert_called_before(&self, tool: &str, other: &str) -> &Self {
        self.assert_called(tool);
        let is_before = match self.first(other) {
            Some(index) => self.first(tool) < Some(index),
            None => true,
        };
        assert!(is_before, "`{other}` was called before `{tool}`; {self}");
        self
    }

    /// Asserts that a tool was called at most `times` times.
    #[track_caller]
    pub fn assert_called_at_most(&self, tool: &str, times: usize) -> &Self {
        let count = self.count(tool);
        assert!(
            count <= times,
            "`{tool}` was called {count} times, and at most {times} are allowed; {self}"
        );
        self
    }

    /// Asserts that a tool was not called.
    #[track_caller]
    pub fn assert_never_called(&self, tool: &str) -> &Self {
        assert!(self.count(tool) == 0, "`{tool}` was called; {self}");
        self
    }

    /// Asserts that a call of a tool has such arguments.
    #[track_caller]
    pub fn assert_called_with(&self, tool: &str, arguments: impl Fn(&Value) -> bool) -> &Self {
        self.assert_called(tool);
        let has = self
            .calls
            .iter()
            .any(|step| &*step.tool == tool && arguments(step.arguments.value()));
        assert!(has, "`{tool}` was not called with such arguments; {self}");
        self
    }

    fn first(&self, tool: &str) -> Option<usize> {
        self.calls.iter().position(|step| &*step.tool == tool)
    }

    fn count(&self, tool: &str) -> usize {
        self.calls.iter().filter(|step| &*step.tool == tool).count()
    }
}

/// Shows one call a line.
impl fmt::Display for Trajectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.calls.is_empty() {
            return f.write_str("no tool was called");
        }
        f.write_str("the calls were:")?;
        for (index, step) in self.calls.iter().enumerate() {
            write!(f, "\n  {}. {step}", index + 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.agent.is_empty() {
            write!(f, "{}: ", self.agent)?;
        }
        write!(f, "{} {}", self.tool, self.arguments)?;
        match (&self.result, self.is_error) {
            (None, _) => f.write_str(" -> no result"),
            (Some(result), false) => write!(f, " -> {result}"),
            (Some(result), true) => write!(f, " -> error: {result}"),
        }
    }
}
