//! Converts the client's input to a request for an agent.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::client_tool::{self, OwnTools};
use crate::wire::{Context, InputError, ResumeEntry, RunAgentInput};
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
        for (path, id) in [("threadId", &input.thread_id), ("runId", &input.run_id)] {
            check_id(path, id, MAX_ID)?;
        }
        for (index, message) in input.messages.iter().enumerate() {
            check_id(format!("messages[{index}].id"), &message.id, MAX_MESSAGE_ID)?;
        }
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

/// The maximum length of an id in bytes. Every event contains ids, so a long one multiplies.
const MAX_ID: usize = 1024;

/// The maximum length of a message's id in bytes. Those of the server have the path of an agent in
/// them, which may be nested, so they are longer than the ids that a client chooses.
const MAX_MESSAGE_ID: usize = 8 * 1024;

fn state(state: Option<Value>) -> Result<State, InputError> {
    match state {
        None | Some(Value::Null) => Ok(State::from(Map::new())),
        Some(Value::Object(state)) => Ok(State::from(state)),
        Some(_) => Err(InputError::new("state", "the state must be an object")),
    }
}

/// Rejects an id that would be more than one line in a log, or would hide a part of it.
fn check_id(path: impl Into<String>, id: &str, most: usize) -> Result<(), InputError> {
    if id.len() > most {
        let why = format!("the id is longer than {most} bytes");
        return Err(InputError::new(path, why));
    }
    if id.contains(char::is_control) {
        return Err(InputError::new(path, "the id contains a control character"));
    }
    Ok(())
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
