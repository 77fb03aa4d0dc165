// Sampling and roots are deprecated; servers still ask for them.
#![allow(deprecated)]

use std::collections::{BTreeMap, BTreeSet};

use rmcp::model::{
    CallToolRequestParams, ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest,
    InputRequests,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::call::Request;
use tower_agent::error::ResolutionOutcome;
use tower_agent::{Error, Interrupt, Resolution, Result, RunContext};

use super::remote_call::RemoteCall;
use super::{error, sampling};

/// The name of the data about a call, in the conversation's private state.
const NAME: &str = "tower_agent_mcp.questions";

/// The reason of the interrupts.
const INPUT_REQUIRED: &str = "input_required";

/// The questions that a server asked in one call, and their answers. They are kept until the call
/// has a result, also across an interrupt of the run.
pub(super) struct Questions {
    record: Record,
    key: String,
    /// Marks of the answers in `record.during` that this attempt has given. A server that asks the
    /// same question twice gets each answer once.
    given: Vec<bool>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    /// The arguments of the call. A call with others does not get these answers.
    arguments: Value,
    /// The number of times that questions were asked, for ids that do not repeat.
    round: u32,
    open: Vec<Open>,
    /// The server's own state, which it receives with the answers.
    state: Option<String>,
    /// The answers to the questions of a result, by the server's keys.
    answers: BTreeMap<String, Value>,
    /// The answers to questions that the server asked during the call.
    during: Vec<(Value, ElicitResult)>,
    /// The task that asked.
    task: Option<String>,
    /// The keys of the task's questions that were answered.
    answered: BTreeSet<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Open {
    question: Value,
    interrupt: Interrupt,
    /// The server's key; `None` for a question during the call.
    key: Option<String>,
}

impl Questions {
    /// Returns the questions of a call, as an earlier attempt has saved them.
    pub(super) fn of(call: &RemoteCall<'_>) -> Self {
        let context = call.request.context();
        let arguments = call.request.arguments();
        let key = context.call_key(NAME);
        let saved = context.private_state().get(&key);
        let saved: Option<Record> = saved.and_then(|value| serde_json::from_value(value).ok());
        // The arguments may have been edited since. Answers about the old ones must not be taken
        // for answers about these.
        let record = saved
            .filter(|record| record.arguments == *arguments)
            .unwrap_or_else(|| Record {
                arguments: arguments.clone(),
                ..Record::default()
            });
        Self {
            record,
            key,
            given: Vec::new(),
        }
    }

    /// Returns the task that asked, if one did.
    pub(super) fn task(&self) -> Option<String> {
        self.record.task.clone()
    }

    /// Takes the answers of the run's caller. Interrupts the run again if there is a question
    /// without one.
    pub(super) fn resolve(&mut self, call: &RemoteCall<'_>) -> Result<()> {
        let context = call.request.context();
        if self.record.open.is_empty() {
            return Ok(());
        }
        let mut open = Vec::new();
        for question in std::mem::take(&mut self.record.open) {
            match context.resolution(&question.interrupt.id) {
                Some(resolution) => {
                    context.note_answer(&resolution);
                    self.answer(question, &resolution);
                }
                None => open.push(question),
            }
        }
        self.record.open = open;
        self.interrupt(context)
    }

    fn answer(&mut self, open: Open, resolution: &Resolution) {
        // An accepted visit of a page has no content, and a form must have some.
        let is_form = !open.interrupt.response_schema.is_null();
        let answer = match &resolution.outcome {
            ResolutionOutcome::Resolved(Value::Null) => {
                ElicitResult::new(ElicitationAction::Decline)
            }
            ResolutionOutcome::Resolved(content) if is_form => {
                ElicitResult::new(ElicitationAction::Accept).with_content(content.clone())
            }
            ResolutionOutcome::Resolved(_) => ElicitResult::new(ElicitationAction::Accept),
            _ => ElicitResult::new(ElicitationAction::Cancel),
        };
        match open.key {
            Some(key) => {
                let answer = serde_json::to_value(answer).unwrap_or_default();
                self.record.answers.insert(key, answer);
            }
            None => self.record.during.push((open.question, answer)),
        }
    }

    /// Saves the questions, and fails if one is open.
    fn interrupt(&self, context: &RunContext) -> Result<()> {
        // Saved also without an open question, so that another attempt finds the answers.
        let record = serde_json::to_value(&self.record).map_err(tower::BoxError::from)?;
        context.private_state().set(self.key.clone(), record);
        if self.record.open.is_empty() {
            return Ok(());
        }
        let open = self.record.open.iter().map(|open| open.interrupt.clone());
        Err(Error::interrupt_all(open))
    }

    /// Adds the answers and the server's state to a request.
    pub(super) fn answered(&self, mut params: CallToolRequestParams) -> CallToolRequestParams {
        params.request_state = self.record.state.clone();
        if !self.record.answers.is_empty() {
            params.input_responses = Some(self.record.answers.clone());
        }
        params
    }

    /// Returns the answers to questions of a task that have not been sent, and counts them as sent.
    pub(super) fn take_answers(&mut self) -> BTreeMap<String, Value> {
        // A server may list a question for a while after its answer: it is not asked again.
        let answers = std::mem::take(&mut self.record.answers);
        self.record.answered.extend(answers.keys().cloned());
        answers
    }

    /// Takes the questions of a task, except those that were answered.
    pub(super) async fn ask_task(
        &mut self,
        call: &RemoteCall<'_>,
        task: &str,
        mut requests: InputRequests,
    ) -> Result<()> {
        requests.retain(|key, _| !self.record.answered.contains(key));
        if requests.is_empty() {
            return Ok(());
        }
        self.record.task = Some(task.to_owned());
        self.ask_inputs(call, requests, None).await
    }

    /// Takes the questions of a result, instead of those before. Completions are answered at once;
    /// questions for the user interrupt the run.
    pub(super) async fn ask_inputs(
        &mut self,
        call: &RemoteCall<'_>,
        requests: InputRequests,
        state: Option<String>,
    ) -> Result<()> {
        let context = call.request.context();
        // Answers to an earlier result are used up, and its state is replaced even by none.
        self.record.state = state;
        self.record.answers = BTreeMap::new();
        self.record.round += 1;
        for (key, request) in requests {
            let answer = match request {
                InputRequest::Elicitation(question) => {
                    let open = self.open(call, &question.params, Some(key));
                    self.record.open.push(open);
                    continue;
                }
                InputRequest::CreateMessage(request) => {
                    let answer = sampling::answer(call.config(), request.params, context.clone())
                        .await
                        .map_err(|refused| error::rejected(&call.config().server, &refused))?;
                    serde_json::to_value(answer)
                }
                InputRequest::ListRoots(_) => serde_json::to_value(call.config().list_roots()?),
                _ => return Err(call.protocol_error("asks for input of a kind that is not known")),
            };
            let answer = answer.map_err(tower::BoxError::from)?;
            self.record.answers.insert(key, answer);
        }
        self.interrupt(context)
    }

    /// Returns the answer to a question during the call, if it was given before.
    pub(super) fn answer_to(&mut self, question: &ElicitRequestParams) -> Option<ElicitResult> {
        let question = identity(question);
        self.given.resize(self.record.during.len(), false);
        for ((answered, answer), given) in self.record.during.iter().zip(&mut self.given) {
            if !*given && *answered == question {
                *given = true;
                return Some(answer.clone());
            }
        }
        None
    }

    /// Returns the error that asks the user a question during the call.
    pub(super) fn ask(&mut self, call: &RemoteCall<'_>, question: &ElicitRequestParams) -> Error {
        self.record.round += 1;
        let open = self.open(call, question, None);
        self.record.open.push(open);
        match self.interrupt(call.request.context()) {
            Err(interrupt) => interrupt,
            Ok(()) => call.protocol_error("asked a question that was lost"),
        }
    }

    fn open(
        &self,
        call: &RemoteCall<'_>,
        question: &ElicitRequestParams,
        key: Option<String>,
    ) -> Open {
        let path = call.request.context().call_path();
        // A later question of the call must not find the answer to this one.
        let id = format!(
            "{path}/{}#{}",
            key.as_deref().unwrap_or("question"),
            self.record.round
        );
        let mut payload = json!({ "server": &*call.config().server, "tool": call.request.name() });
        let interrupt = Interrupt::new(id, INPUT_REQUIRED);
        let interrupt = match question {
            ElicitRequestParams::FormElicitationParams {
                message,
                requested_schema,
                ..
            } => {
                payload["mode"] = "form".into();
                let schema = serde_json::to_value(requested_schema).unwrap_or_default();
                interrupt.with_message(message).with_response_schema(schema)
            }
            ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
                payload["mode"] = "url".into();
                payload["url"] = url.as_str().into();
                interrupt.with_message(message)
            }
            _ => interrupt,
        };
        Open {
            question: identity(question),
            interrupt: interrupt.with_payload(payload),
            key,
        }
    }
}

/// Returns the part of a question that is the same when a server asks it again: ids and metadata
/// are new each time.
fn identity(question: &ElicitRequestParams) -> Value {
    match question {
        ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } => {
            json!({ "message": message, "schema": requested_schema })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            json!({ "message": message, "url": url })
        }
        other => serde_json::to_value(other).unwrap_or_default(),
    }
}
