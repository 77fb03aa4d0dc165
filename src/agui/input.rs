//! What a front end asks for, as a request for an agent.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    Context, InputError, ResumeEntry, ResumeStatus, RunAgentInput, client_tool, conversation,
};
use crate::agent::AgentRequest;
use crate::callback::{Bundle, before_model};
use crate::context::State;
use crate::error::Resolution;

/// The conversation, the state, the front end's own tools, what it wants the agent to know, and
/// its answers to what the last run waits for. The forwarded properties are the application's.
///
/// # Errors
///
/// A message has a part that no model can read, the state or a tool's schema is no object, two
/// tools have one name, or one interrupt is answered twice.
impl TryFrom<&RunAgentInput> for AgentRequest {
    type Error = InputError;

    fn try_from(input: &RunAgentInput) -> Result<Self, InputError> {
        let tools = client_tool::tools(&input.tools)?;
        answered_once(&input.resume)?;
        let mut request = Self::conversation(conversation::read(&input.messages)?)
            .with_run_id(input.run_id.clone())
            .with_resolutions(input.resume.iter().map(Resolution::from))
            .with_state(state(input.state.as_ref())?)
            .with_tools(tools);
        if let Some(told) = told(&input.context) {
            let tell = before_model(move |request| request.add_instructions(&told));
            request = request.with_callbacks(Bundle::new().on_model(tell));
        }
        Ok(request)
    }
}

impl From<&ResumeEntry> for Resolution {
    fn from(entry: &ResumeEntry) -> Self {
        let id = &*entry.interrupt_id;
        match entry.status {
            ResumeStatus::Cancelled => Self::cancelled(id),
            ResumeStatus::Resolved => Self::resolved(id, entry.payload.clone().unwrap_or_default()),
        }
    }
}

fn state(state: Option<&Value>) -> Result<State, InputError> {
    match state {
        None | Some(Value::Null) => Ok(State::from(Map::new())),
        Some(Value::Object(state)) => Ok(State::from(state.clone())),
        Some(_) => Err(InputError::new("state", "the state must be an object")),
    }
}

/// Which of two answers is meant, nobody can tell.
fn answered_once(resume: &[ResumeEntry]) -> Result<(), InputError> {
    let mut answered = HashSet::new();
    match resume.iter().position(|entry| !answered.insert(&entry.interrupt_id)) {
        None => Ok(()),
        Some(at) => {
            let why = format!("the interrupt `{}` is answered twice", resume[at].interrupt_id);
            Err(InputError::new(format!("resume[{at}].interruptId"), why))
        }
    }
}

/// What the model is told of the front end's context.
fn told(context: &[Context]) -> Option<String> {
    let lines =
        context.iter().map(|Context { description, value }| format!("{description}: {value}"));
    let lines: Vec<_> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
