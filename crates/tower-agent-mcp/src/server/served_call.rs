use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientResult,
    ContentBlock, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationCapability,
    ErrorData, InputRequest, InputRequiredResult, ProgressNotificationParam, ProtocolVersion,
    ServerRequest,
};
use rmcp::service::{RequestContext, RoleServer, ServiceError};
use serde_json::Value;
use tokio::sync::mpsc;
use tower_agent::error::{AnswerError, ResolutionOutcome};
use tower_agent::{Checkpoint, Interrupt, Resolution};

use super::caller::Sender;
use super::failure::FailureMessage;
use super::progress::Progress;
use super::seal::{Refusal, Seal};
use super::served::{Ended, Part, Served};
use super::{answers, content, form};

/// The capacity of the channel for progress. A client that reads slowly slows the run down.
const PROGRESS_CAPACITY: usize = 16;

/// One request of a client to call a tool.
pub(super) struct ServedCall<'a> {
    seal: &'a Seal,
    failure_message: &'a FailureMessage,
    served: &'a Served,
    arguments: Value,
    principal: Option<Arc<str>>,
    /// The state of a call that was interrupted, and the resolutions of its interrupts.
    continued: Option<(Checkpoint, Vec<Resolution>)>,
    context: &'a RequestContext<RoleServer>,
}

impl<'a> ServedCall<'a> {
    pub(super) fn new(
        seal: &'a Seal,
        failure_message: &'a FailureMessage,
        served: &'a Served,
        params: CallToolRequestParams,
        context: &'a RequestContext<RoleServer>,
    ) -> Result<Self, ErrorData> {
        let arguments = Value::Object(params.arguments.unwrap_or_default());
        let name = served.declaration().name();
        let principal = Sender::of(context).caller.principal;
        let continued = match params.request_state {
            None => None,
            Some(sealed) => {
                let checkpoint = seal
                    .open(principal.as_deref(), name, &arguments, &sealed)
                    .map_err(refused)?;
                let answers = params.input_responses.unwrap_or_default();
                let interrupts = &checkpoint.head.interrupts;
                let resolutions = resolutions(interrupts, answers, SystemTime::now())?;
                Some((checkpoint, resolutions))
            }
        };
        Ok(Self {
            seal,
            failure_message,
            served,
            arguments,
            principal,
            continued,
            context,
        })
    }

    pub(super) async fn run(mut self) -> Result<CallToolResponse, ErrorData> {
        if let Err(error) = self.served.check(&self.arguments) {
            // The client has sent these arguments, so it may know what is wrong with them.
            return Ok(failed(format!("{}: {}", error.kind(), error.message())));
        }
        loop {
            let checkpoint = match self.part().await {
                Ended::Completed(response) => return Ok(content::result(&response).into()),
                Ended::Interrupted(checkpoint) => *checkpoint,
                Ended::Failed(error, run) => {
                    return Ok(failed(self.failure_message.of(&error, &run)));
                }
            };
            // The client's user has no role, and must not be able to answer in place of somebody
            // who has.
            if let Some(role) = role_in(&checkpoint.head.interrupts) {
                // The question itself is not for this user to read.
                return Ok(failed(format!(
                    "interrupted: this call waits for somebody with the role `{role}`"
                )));
            }
            let version = self.context.protocol_version();
            let is_modern = version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
            match (self.elicits(), is_modern) {
                (true, true) => return self.ask(checkpoint),
                // Clients of earlier versions know no `input_required`: asked below, while the
                // call is open.
                (true, false) => {}
                (false, true) => return Err(unable(&checkpoint.head.interrupts)),
                (false, false) => return Ok(failed(waiting(&checkpoint.head.interrupts))),
            }
            let mut resolutions = Vec::new();
            for interrupt in &checkpoint.head.interrupts {
                match self.ask_now(interrupt).await {
                    Ok(resolution) => resolutions.push(resolution),
                    Err(error) => {
                        // The checkpoint is lost with the call: earlier versions have no place
                        // for it.
                        tracing::warn!(error = %error.to_string().escape_debug(), "the client did not answer a question");
                        return Ok(failed(waiting(&checkpoint.head.interrupts)));
                    }
                }
            }
            self.continued = Some((checkpoint, resolutions));
        }
    }

    /// Runs the call until it ends or is interrupted.
    async fn part(&mut self) -> Ended {
        let (checkpoint, resolutions) = self.continued.take().unzip();
        let progress_token = self.context.meta.get_progress_token();
        let (sender, mut receiver) = mpsc::channel(PROGRESS_CAPACITY);
        let part = Part {
            arguments: self.arguments.clone(),
            checkpoint,
            resolutions: resolutions.unwrap_or_default(),
            // A child: the client can cancel the run, and the run cannot cancel the request.
            token: self.context.ct.child_token(),
            progress: progress_token.is_some().then_some(sender),
            sender: Sender::of(self.context),
        };
        let Some(token) = progress_token else {
            return self.served.run(part).await;
        };
        let peer = &self.context.peer;
        // It drops the receiver when it ends, so that the run does not wait for it.
        let notifications = async move {
            let mut count = 0.0;
            while let Some(Progress {
                progress,
                total,
                message,
            }) = receiver.recv().await
            {
                // The protocol requires a number that grows, and text has none of its own.
                count = progress.unwrap_or(count + 1.0);
                let mut progress = ProgressNotificationParam::new(token.clone(), count);
                progress.total = total;
                progress.message = message;
                if peer.notify_progress(progress).await.is_err() {
                    break;
                }
            }
        };
        // The run closes the channel, which ends the notifications: the last ones are sent before
        // the result.
        let (ended, ()) = futures_util::join!(self.served.run(part), notifications);
        ended
    }

    fn elicits(&self) -> bool {
        self.context
            .client_capabilities()
            .is_some_and(|client| client.elicitation.is_some())
    }

    /// Asks with a result: the client repeats the call with the answers.
    fn ask(&self, checkpoint: Checkpoint) -> Result<CallToolResponse, ErrorData> {
        let mut requests = BTreeMap::new();
        for interrupt in &checkpoint.head.interrupts {
            let question = form::question(interrupt).ok_or_else(cannot_ask)?;
            let question = InputRequest::Elicitation(ElicitRequest::new(question));
            let key = key_in(&checkpoint.head.interrupts, interrupt);
            requests.insert(key.to_owned(), question);
        }
        let name = self.served.declaration().name();
        let state = self
            .seal
            .seal(self.principal.as_deref(), name, &self.arguments, checkpoint)
            .ok_or_else(cannot_ask)?;
        Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
    }

    /// Asks during the call, until the question expires.
    async fn ask_now(&self, interrupt: &Interrupt) -> Result<Resolution, ServiceError> {
        let question: ElicitRequestParams =
            form::question(interrupt).ok_or_else(|| ServiceError::McpError(cannot_ask()))?;
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(question));
        let asked = self.context.peer.send_request(request);
        let answer = match &interrupt.expiry {
            None => asked.await,
            Some(expiry) => {
                let left = expiry.at.duration_since(SystemTime::now());
                let timeout = left.unwrap_or_default();
                let answer = tokio::time::timeout(timeout, asked).await;
                answer.unwrap_or(Err(ServiceError::Timeout { timeout }))
            }
        };
        // An answer that came after the time is none.
        if let Some(expired) = interrupt.answer_at(SystemTime::now()) {
            return Ok(expired);
        }
        match answer? {
            ClientResult::ElicitResult(answer) => Ok(answers::resolution(interrupt, answer)),
            _ => Err(ServiceError::UnexpectedResponse),
        }
    }
}

/// Returns the key under which a client answers one of these interrupts: the name that the tool has
/// chosen. What was shown is in the sealed state that comes back with the answer, and nobody
/// answers a question with the state of another.
fn key_in<'a>(interrupts: &[Interrupt], interrupt: &'a Interrupt) -> &'a str {
    let with_name = interrupts
        .iter()
        .filter(|other| other.name == interrupt.name);
    if with_name.count() == 1 {
        &interrupt.name
    } else {
        &interrupt.id
    }
}

/// Returns the resolutions of the interrupts that the client has answered, and of those that have
/// expired. An interrupt without a valid answer stays open, so that the run asks for it again.
fn resolutions(
    interrupts: &[Interrupt],
    mut answers: BTreeMap<String, Value>,
    now: SystemTime,
) -> Result<Vec<Resolution>, ErrorData> {
    let mut resolutions = Vec::new();
    for interrupt in interrupts {
        if let Some(answer) = answers.remove(key_in(interrupts, interrupt))
            && let Ok(answer) = serde_json::from_value::<ElicitResult>(answer)
        {
            let resolution = answers::resolution(interrupt, answer);
            // The user who declines gets what has happened anyway.
            let is_answer = resolution.outcome != ResolutionOutcome::Cancelled;
            if is_answer && interrupt.check(&resolution, now) == Err(AnswerError::Late) {
                return Err(expired(interrupt));
            }
            resolutions.push(resolution);
        }
        resolutions.extend(interrupt.answer_at(now));
    }
    Ok(resolutions)
}

/// Returns the role of the first question that the user cannot answer.
fn role_in(interrupts: &[Interrupt]) -> Option<&str> {
    interrupts
        .iter()
        .find_map(|interrupt| interrupt.answerer.role())
}

fn refused(refusal: Refusal) -> ErrorData {
    let message = match refusal {
        Refusal::Invalid => "the request state does not belong to this call",
        Refusal::Expired => "the request state has expired; make the call anew",
        Refusal::Used => "the request state was used before; make the call anew",
    };
    ErrorData::invalid_params(message, None)
}

fn expired(interrupt: &Interrupt) -> ErrorData {
    let message = format!(
        "the time for an answer is over: {}; make the call anew",
        form::message(interrupt)
    );
    ErrorData::invalid_params(message, None)
}

fn cannot_ask() -> ErrorData {
    ErrorData::internal_error("the call waits for input that cannot be asked for", None)
}

/// The error for a client that does not declare what the call needs, since protocol version
/// 2026-07-28.
fn unable(interrupts: &[Interrupt]) -> ErrorData {
    let mut needed = ClientCapabilities::default();
    needed.elicitation = Some(ElicitationCapability::new());
    let mut error = ErrorData::missing_required_client_capability(needed);
    error.message = waiting(interrupts).into();
    error
}

fn failed(message: String) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(message)]).into()
}

fn waiting(interrupts: &[Interrupt]) -> String {
    format!(
        "interrupted: this call needs an answer of the user, and the client cannot ask for one \
         (elicitation): {}",
        messages(interrupts),
    )
}

fn messages<'a>(interrupts: impl IntoIterator<Item = &'a Interrupt>) -> String {
    let messages: Vec<_> = interrupts.into_iter().map(form::message).collect();
    messages.join("; ")
}
