//! Converts the client's input to a request for an agent.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::client_tool;
use crate::wire::{Context, InputError, ResumeEntry, RunAgentInput};
use tower_agent::agent::AgentRequest;
use tower_agent::callback::{Bundle, before_model};
use tower_agent::context::State;
use tower_agent::tool::ToolSet;

/// The input besides the conversation: the state, the client's tools, and the context for the
/// agent. The forwarded properties are left to the application.
pub(super) struct Said {
    state: State,
    tools: ToolSet,
    told: Option<String>,
}

impl Said {
    /// Reads an input.
    ///
    /// # Errors
    ///
    /// Fails if the state or a tool's schema is not an object, two tools have the same name, an
    /// interrupt is answered twice, or an id is too long.
    pub(super) fn read(input: &RunAgentInput) -> Result<Self, InputError> {
        for (path, name) in [("threadId", &input.thread_id), ("runId", &input.run_id)] {
            if name.len() > LONGEST_NAME {
                let why = format!("the id is longer than {LONGEST_NAME} bytes");
                return Err(InputError::new(path, why));
            }
        }
        answered_once(&input.resume)?;
        let tools = client_tool::tools(&input.tools)?;
        Ok(Self {
            state: state(input.state.as_ref())?,
            tools,
            told: told(&input.context),
        })
    }

    /// Adds the input to a request. Its run has an id of its own: the client's may be that of another
    /// run, whose calls would count as those of this one.
    pub(super) fn ask(self, request: AgentRequest) -> AgentRequest {
        let request = request.with_state(self.state).with_tools(self.tools);
        let Some(told) = self.told else {
            return request;
        };
        let tell = before_model(move |request| request.add_instructions(&told));
        request.with_callbacks(Bundle::new().on_model(tell))
    }
}

/// Every event contains it.
const LONGEST_NAME: usize = 1024;

fn state(state: Option<&Value>) -> Result<State, InputError> {
    match state {
        None | Some(Value::Null) => Ok(State::from(Map::new())),
        Some(Value::Object(state)) => Ok(State::from(state.clone())),
        Some(_) => Err(InputError::new("state", "the state must be an object")),
    }
}

/// Rejects ambiguous answers.
fn answered_once(resume: &[ResumeEntry]) -> Result<(), InputError> {
    let mut answered = HashSet::new();
    match resume
        .iter()
        .position(|entry| !answered.insert(&entry.interrupt_id))
    {
        None => Ok(()),
        Some(at) => {
            let why = format!(
                "the interrupt `{}` is answered twice",
                resume[at].interrupt_id
            );
            Err(InputError::of_answer(at, why))
        }
    }
}

/// Returns the client's context as text for the model.
fn told(context: &[Context]) -> Option<String> {
    let lines = context
        .iter()
        .map(|Context { description, value }| format!("{description}: {value}"));
    let lines: Vec<_> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
