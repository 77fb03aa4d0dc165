//! What a front end asks for, as a request for an agent.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Context, InputError, ResumeEntry, RunAgentInput, client_tool};
use tower_agent::agent::AgentRequest;
use tower_agent::callback::{Bundle, before_model};
use tower_agent::context::State;
use tower_agent::tool::ToolSet;

/// What an input says beside the conversation: the state, the front end's own tools, and what it
/// wants the agent to know. The forwarded properties are the application's.
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
    /// The state or a tool's schema is no object, two tools have one name, one interrupt is
    /// answered twice, or a name is too long.
    pub(super) fn read(input: &RunAgentInput) -> Result<Self, InputError> {
        for (path, name) in [("threadId", &input.thread_id), ("runId", &input.run_id)] {
            if name.len() > LONGEST_NAME {
                let why = format!("the name is longer than {LONGEST_NAME} bytes");
                return Err(InputError::new(path, why));
            }
        }
        answered_once(&input.resume)?;
        let tools = client_tool::tools(&input.tools)?;
        Ok(Self { state: state(input.state.as_ref())?, tools, told: told(&input.context) })
    }

    /// The request that says it, too.
    pub(super) fn ask(self, request: AgentRequest, input: &RunAgentInput) -> AgentRequest {
        let request =
            request.with_run_id(input.run_id.clone()).with_state(self.state).with_tools(self.tools);
        let Some(told) = self.told else { return request };
        let tell = before_model(move |request| request.add_instructions(&told));
        request.with_callbacks(Bundle::new().on_model(tell))
    }
}

/// It stands in every event.
const LONGEST_NAME: usize = 1024;

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
