//! Programs, and how they run here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tower::service_fn;
use tower_agent::compat::Semantics;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::model::BoxModel;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, Effect, Error, ErrorKind,
    Interrupt, ModelRequest, ModelResponse, Resolution, Result, State, Tool, ToolRequest,
    ToolResponse,
};
use tower_agent_middleware::approval::Decision;

use super::middleware;
use super::ready::{self, Ready};
use super::seen::{Asked, Seen, shown};

/// A program, and how it differs from the original.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    #[serde(default)]
    system: Option<String>,
    #[serde(default)]
    tools: Vec<String>,
    #[serde(default)]
    middleware: Vec<Middleware>,
    says: Vec<Turn>,
    /// What the user says.
    turns: Vec<String>,
    /// What is answered to the questions of the last run.
    #[serde(default)]
    decisions: Vec<Decided>,
    /// What differs, each with its row among the deliberate differences of the page.
    #[serde(default)]
    pub(super) differs: BTreeMap<String, String>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Middleware {
    Ready(Ready),
    Own {
        name: String,
        hooks: BTreeMap<String, Vec<Option<Do>>>,
    },
}

/// What a hook does; which fields it has depends on the hook.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Do {
    pub(super) raise: Option<String>,
    pub(super) jump: Option<String>,
    pub(super) say: Option<String>,
    pub(super) calls: Option<Vec<(String, Value)>>,
    pub(super) replace: Option<String>,
    pub(super) set: Option<Map<String, Value>>,
    pub(super) see: Option<String>,
    pub(super) answer: Option<String>,
    pub(super) system: Option<String>,
    pub(super) no_tools: bool,
    pub(super) twice: bool,
    pub(super) retry: u32,
    pub(super) catch: Option<String>,
    pub(super) args: Option<Value>,
}

/// What a model says.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Turn {
    Text(String),
    Fails {
        error: String,
    },
    Calls {
        calls: Vec<(String, Value)>,
        #[serde(default)]
        text: String,
    },
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Approve {
    Approve,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Decided {
    Approve(Approve),
    Other {
        edit: Option<(String, Value)>,
        reject: Option<String>,
        respond: Option<String>,
    },
}

/// What the parts of a program share.
#[derive(Clone, Default)]
pub(super) struct World {
    pub(super) log: Arc<Mutex<Vec<String>>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The number of the next call of a tool.
    next: Arc<AtomicUsize>,
}

impl World {
    pub(super) fn write(&self, entry: impl Into<String>) {
        self.log.lock().unwrap().push(entry.into());
    }

    /// Returns calls with their ids, in the order in which they are made.
    pub(super) fn calls(&self, calls: &[(String, Value)]) -> Vec<ToolCall> {
        let calls = calls.iter().map(|(name, arguments)| {
            let id = format!("c{}", self.next.fetch_add(1, Ordering::Relaxed));
            ToolCall::new(id, name.clone(), arguments.clone())
        });
        calls.collect()
    }

    pub(super) fn model(&self, says: &[Turn]) -> BoxModel {
        let says = Arc::new(Mutex::new(VecDeque::from_iter(says.iter().cloned())));
        let world = self.clone();
        BoxModel::new(service_fn(move |request: ModelRequest| {
            world.asked.lock().unwrap().push(Asked::of(&request));
            let turn = says.lock().unwrap().pop_front();
            let answer = world.answer(turn);
            async move { answer }
        }))
    }

    fn answer(&self, turn: Option<Turn>) -> Result<ModelResponse> {
        match turn {
            Some(Turn::Text(text)) => Ok(ModelResponse::from_text(text)),
            Some(Turn::Calls { calls, text }) => {
                let mut response = ModelResponse::from_tool_calls(self.calls(&calls));
                if !text.is_empty() {
                    response = response.with_text(text);
                }
                Ok(response)
            }
            Some(Turn::Fails { error }) => Err(down(error)),
            None => Err(Error::new(ErrorKind::Provider, "the script is over")),
        }
    }

    fn tool(&self, name: &str) -> Tool {
        let world = self.clone();
        let schema = match name {
            "add" => json!({ "a": { "type": "integer" }, "b": { "type": "integer" } }),
            _ => json!({ "text": { "type": "string" } }),
        };
        let required: Vec<_> = schema.as_object().unwrap().keys().cloned().collect();
        let parameters = json!({ "type": "object", "properties": schema, "required": required });
        let name = name.to_owned();
        let declared = ToolDeclaration::new(name.clone(), name.clone())
            .with_parameters(parameters)
            // The original tries any tool again.
            .with_effect(Effect::Idempotent);
        Tool::service(
            declared,
            service_fn(move |request: ToolRequest| {
                world.write(name.clone());
                let arguments = request.arguments();
                let text = arguments["text"].as_str().unwrap_or_default().to_owned();
                let result = match &*name {
                    "add" => {
                        let sum =
                            arguments["a"].as_i64().unwrap() + arguments["b"].as_i64().unwrap();
                        Ok(ToolResponse::new(sum.to_string()))
                    }
                    "echo" => Ok(ToolResponse::new(text)),
                    _ => Err(down(text)),
                };
                async move { result }
            }),
        )
    }
}

/// Returns an error that may be tried again.
pub(super) fn down(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Overloaded, text.into())
}

impl Case {
    /// Runs the program here, one turn of the user after another.
    pub(super) async fn run_here(&self) -> Seen {
        let world = World::default();
        let agent = self.agent(&world);
        let state = State::default();
        let mut seen = Seen::default();
        let mut checkpoint: Option<Checkpoint> = None;
        let mut questions = Vec::new();
        for text in &self.turns {
            let request = match checkpoint.take() {
                Some(before) => AgentRequest::resume(before).with_message(text.clone()),
                None => AgentRequest::new(text.clone()),
            };
            let ended = agent.run(request.with_state(state.clone())).await;
            questions = seen.end(ended, &mut checkpoint);
        }
        if !self.decisions.is_empty() {
            let answers = questions.iter().zip(&self.decisions);
            let answers = answers
                .map(|(question, decided)| Resolution::resolved(&question.id, decided.decision()));
            let request = AgentRequest::resume(checkpoint.take().unwrap());
            let request = request.with_resolutions(answers);
            let ended = agent.run(request.with_state(state.clone())).await;
            seen.end(ended, &mut checkpoint);
        }
        seen.messages = shown(&checkpoint.map_or(Messages::new(), |kept| kept.messages));
        seen.log = std::mem::take(&mut world.log.lock().unwrap());
        seen.requests = std::mem::take(&mut world.asked.lock().unwrap());
        seen.state = state.snapshot();
        seen
    }

    fn agent(&self, world: &World) -> Agent {
        let mut model = world.model(&self.says);
        for one in &self.middleware {
            if let Middleware::Ready(ready) = one {
                model = ready::around_model(ready, model, world);
            }
        }
        let mut agent: AgentBuilder = Agent::builder(model)
            .semantics(Semantics::langchain())
            .tools(self.tools.iter().map(|name| world.tool(name)));
        if let Some(system) = &self.system {
            agent = agent.instructions(system.clone());
        }
        for one in &self.middleware {
            agent = match one {
                Middleware::Own { name, hooks } => middleware::add(agent, name, hooks, world),
                Middleware::Ready(ready) => ready::add(agent, ready, world),
            };
        }
        agent.build().unwrap()
    }
}

impl Seen {
    /// Notes how a run has ended, and returns its open questions.
    fn end(
        &mut self,
        ended: Result<AgentResponse>,
        checkpoint: &mut Option<Checkpoint>,
    ) -> Vec<Interrupt> {
        self.failed.push(ended.is_err());
        match ended {
            Ok(response) => {
                *checkpoint = Some(response.checkpoint());
                response.interrupts().to_vec()
            }
            Err(error) => {
                *checkpoint = error.checkpoint().cloned();
                Vec::new()
            }
        }
    }
}

impl Decided {
    fn decision(&self) -> Decision {
        match self {
            Self::Approve(Approve::Approve) => Decision::Approve,
            Self::Other {
                edit: Some((_, arguments)),
                ..
            } => Decision::Edit(arguments.clone()),
            Self::Other {
                reject: Some(reason),
                ..
            } => Decision::reject(reason.clone()),
            Self::Other { respond, .. } => Decision::Respond(json!(respond)),
        }
    }
}
