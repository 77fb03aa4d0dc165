//! Converts the client's input to a request for an agent.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::bounds::{self, check_id, check_length};
use crate::client_tool::{self, OwnTools};
use crate::wire::{Context, InputError, MessageKind, ResumeEntry, RunAgentInput};
use tower_agent::agent::AgentRequest;
use tower_agent::callback::{Bundle, before_model};
use tower_agent::context::State;
use tower_agent::tool::ToolSet;

/// The input besides the conversation: the state, the client's tools, and the context for the
/// agent. The forwarded properties are left to the application.
pub(super) struct RunData {
    state: State,
    tools: ToolSet,
    /// The context as text for the model.
    instructions: Option<String>,
}

impl RunData {
    /// Reads an input, and takes the state out of it: a copy of it would take as much memory again
    /// for as long as the run lasts.
    ///
    /// # Errors
    ///
    /// Fails if the state or a tool's schema is not an object, two tools have the same name or one
    /// has that of a tool of the agent, an interrupt is answered twice, or an id is too long.
    pub(super) fn read(input: &mut RunAgentInput, own: &OwnTools) -> Result<Self, InputError> {
        check_ids(input)?;
        answered_once(&input.resume)?;
        let tools = client_tool::tools(&input.tools, own)?;
        Ok(Self {
            state: state(input.state.take())?,
            tools,
            instructions: instructions(&input.context),
        })
    }

    /// Adds the input to a request. Its run has an id of its own: the client's may be that of
    /// another run, whose calls would count as those of this one.
    pub(super) fn add_to(self, request: AgentRequest) -> AgentRequest {
        let request = request.with_state(self.state).with_tools(self.tools);
        let Some(instructions) = self.instructions else {
            return request;
        };
        // Added to each model request and not to the conversation, where it would stay after the
        // client has changed it.
        let add = before_model(move |request| request.add_instructions(&instructions));
        request.with_callbacks(Bundle::new().on_model(add))
    }
}

/// Fails for ids that are too long, or would be more than one line in a log.
fn check_ids(input: &RunAgentInput) -> Result<(), InputError> {
    check_id("threadId", &input.thread_id, bounds::ID)?;
    check_id("runId", &input.run_id, bounds::ID)?;
    if let Some(parent) = &input.parent_run_id {
        check_id("parentRunId", parent, bounds::ID)?;
    }
    for (index, message) in input.messages.iter().enumerate() {
        let path = |field: &str| format!("messages[{index}].{field}");
        check_id(path("id"), &message.id, bounds::SERVER_ID)?;
        if let Some(subagent) = &message.subagent_run_id {
            check_id(path("subagentRunId"), subagent, bounds::SERVER_ID)?;
        }
        match &message.kind {
            MessageKind::Assistant { tool_calls, .. } => {
                for (call, tool_call) in tool_calls.iter().enumerate() {
                    let path = path(&format!("toolCalls[{call}].id"));
                    // A model may have chosen it, with whatever characters.
                    check_length(path, &tool_call.id, bounds::SERVER_ID)?;
                }
            }
            MessageKind::Tool { tool_call_id, .. } => {
                check_length(path("toolCallId"), tool_call_id, bounds::SERVER_ID)?;
            }
            _ => {}
        }
    }
    for (index, tool) in input.tools.iter().enumerate() {
        check_id(format!("tools[{index}].name"), &tool.name, bounds::ID)?;
    }
    for (index, entry) in input.resume.iter().enumerate() {
        let path = format!("resume[{index}].interruptId");
        check_id(path, &entry.interrupt_id, bounds::ID)?;
    }
    Ok(())
}

fn state(state: Option<Value>) -> Result<State, InputError> {
    match state {
        None | Some(Value::Null) => Ok(State::from(Map::new())),
        Some(Value::Object(state)) => Ok(State::from(state)),
        Some(_) => Err(InputError::new("state", "the state must be an object")),
    }
}

/// Rejects ambiguous answers.
fn answered_once(resume: &[ResumeEntry]) -> Result<(), InputError> {
    let mut answered = HashSet::new();
    for (index, entry) in resume.iter().enumerate() {
        if !answered.insert(&entry.interrupt_id) {
            let message = format!("the interrupt `{}` is answered twice", entry.interrupt_id);
            return Err(InputError::of_answer(index, message));
        }
    }
    Ok(())
}

/// Returns the client's context as text for the model.
fn instructions(context: &[Context]) -> Option<String> {
    if context.is_empty() {
        return None;
    }
    let lines: Vec<_> = context
        .iter()
        .map(|entry| format!("{}: {}", entry.description, entry.value))
        .collect();
    Some(lines.join("\n"))
}
