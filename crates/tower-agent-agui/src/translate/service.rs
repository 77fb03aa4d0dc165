use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use serde_json::{Map, Value, json};
use tower::{Service, ServiceExt};

use super::iso_8601::iso_8601;
use super::request::{TranslateRequest, TranslateRun};
use super::response::TranslateResponse;
use crate::lock::lock;
use crate::wire::{
    EncryptedEntity, Event, EventKind as Sent, Interrupt, PROTOCOL_VERSION, RunError, RunFinished,
    RunOutcome, RunStarted, SubagentOutcome, SubagentStarted, TextRole, TokenUsage,
};
use crate::{client_tool, conversation};
use tower_agent::agent::EndReason;
use tower_agent::callback::LayerInner;
use tower_agent::error::{Error, ErrorKind, Result, panic_message};
use tower_agent::message::{IdPart, NoAnswer, Part};
use tower_agent::stream::{self, EventKind, Invocation};

/// The type of the activity of a thread that waits for somebody else than its client.
const WAITING: &str = "WAITING";

/// The innermost service of the translate call. It translates each event on its own.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Translate;

impl Service<TranslateRequest> for Translate {
    type Response = TranslateResponse;
    type Error = Error;
    type Future = std::future::Ready<Result<TranslateResponse, Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: TranslateRequest) -> Self::Future {
        let (event, run) = request.into_parts();
        let mut events = Vec::with_capacity(1);
        translate(event, &run, &mut events);
        std::future::ready(Ok(events.into_iter().collect()))
    }
}

/// Translates a piece of text or reasoning, as [`translate`] does; returns `None` for other events.
#[inline(always)]
pub(crate) fn translate_piece(kind: EventKind, subagent: Option<Arc<str>>) -> Option<Event> {
    let kind = match kind {
        EventKind::TextDelta {
            message: message_id,
            text: delta,
        } => Sent::TextMessageContent { message_id, delta },
        EventKind::ReasoningDelta {
            id: message_id,
            text: delta,
        } => Sent::ReasoningMessageContent { message_id, delta },
        _ => return None,
    };
    Some(Event::piece(kind, subagent))
}

/// Returns the id of the subagent whose events these are; `None` for the agent itself.
pub(crate) fn subagent(invocation: &Invocation) -> Option<&Arc<str>> {
    let owner = invocation.conversation();
    (owner.number > 1).then_some(&owner.id)
}

/// Calls the callbacks and layers around the translation of an event.
pub(crate) async fn translate_through(
    stack: LayerInner<TranslateRequest>,
    request: TranslateRequest,
) -> Result<TranslateResponse> {
    let call = AssertUnwindSafe(stack.oneshot(request)).catch_unwind();
    call.await.unwrap_or_else(|panic| {
        let message = panic_message(&*panic);
        let message = format!("a layer around the translation panicked: {message}");
        Err(Error::new(ErrorKind::Callback, message))
    })
}

/// Appends the translation of an event.
pub(crate) fn translate(event: stream::Event, run: &TranslateRun, out: &mut Vec<Event>) {
    let stream::Event {
        invocation, kind, ..
    } = event;
    let from = out.len();
    match kind {
        EventKind::RunStarted { .. } => {
            out.push(started(run));
            if let Some(latest) = &run.latest {
                let shown = lock(&run.shown);
                // A client keeps the order of what it has and adds the rest at the end, so the
                // latest are taken away first.
                if !latest.is_empty() {
                    out.push(shown.snapshot_without(latest));
                }
                out.push(shown.snapshot());
                out.push(waiting(run, &[]));
            }
        }
        EventKind::RunFinished { reason } => {
            let mut finished = finished(run, None);
            finished.result = unfinished(&reason);
            out.push(finished.into());
        }
        EventKind::RunInterrupted {
            interrupts: pending,
        } => interrupted(run, &pending, out),
        EventKind::RunFailed { error } => {
            out.push(failed(&error, run).with_usage(usage(run)).into());
        }
        EventKind::AgentStarted => out.extend(entered(&invocation)),
        EventKind::AgentFinished {
            interrupts: pending,
            error,
        } => {
            out.extend(left(&invocation, &pending, error, run));
        }
        EventKind::StepStarted { iteration } => {
            out.push(Event::step_started(step(&invocation, iteration)));
        }
        EventKind::StepFinished { iteration, .. } => {
            out.push(Event::step_finished(step(&invocation, iteration)));
        }
        EventKind::TextStart { message } => out.push(text_start(&invocation, message)),
        EventKind::TextDelta { message, text } => out.push(Event::text_content(message, text)),
        EventKind::TextEnd { message } => out.push(Event::text_end(message)),
        // The protocol has a block around the messages of a thought: ours have one each.
        EventKind::ReasoningStart { id, .. } => {
            out.push(Event::reasoning_start(id.clone()));
            out.push(Event::reasoning_message_start(id));
        }
        EventKind::ReasoningDelta { id, text } => {
            out.push(Event::reasoning_message_content(id, text));
        }
        EventKind::ReasoningEnd { id } => {
            out.push(Event::reasoning_message_end(id.clone()));
            out.push(Event::reasoning_end(id));
        }
        EventKind::ToolCallStart(call) => {
            out.push(Event::tool_call_start(
                call.id,
                call.name,
                Some(call.message),
            ));
        }
        EventKind::ToolCallDelta { id, json } => out.push(Event::tool_call_args(id, json)),
        EventKind::ToolCallEnd { id } => out.push(Event::tool_call_end(id)),
        EventKind::ToolCallProviderData { id, data } => {
            if let Some(value) = conversation::encrypted(&data) {
                let of = EncryptedEntity::ToolCall;
                out.push(Event::reasoning_encrypted_value(of, id, value));
            }
        }
        EventKind::ToolResult(result) => {
            let content = if result.is_error_text {
                let text: String = result.parts.iter().filter_map(Part::as_text).collect();
                run.message_of(&Error::new(ErrorKind::Tool, text)).into()
            } else {
                conversation::content(&result.parts)
            };
            let event = Event::tool_call_result(result.message, result.id, content);
            out.push(if result.is_error {
                event.with_metadata(conversation::failure())
            } else {
                event
            });
        }
        EventKind::StateSnapshot { state } => out.push(run.state.snapshot(state)),
        EventKind::StateDelta { delta } => out.push(run.state.delta(delta)),
        EventKind::AttemptDiscarded { message, .. } | EventKind::ResponseReplaced { message } => {
            // No event takes a text back, so the client gets the other messages once more.
            out.push(without(run, &message));
        }
        EventKind::Custom { name, value } => out.push(Event::custom(name, value)),
        // Usage, notes of callbacks and guards, and other events are not sent.
        _ => {}
    }
    if let Some(subagent) = subagent(&invocation) {
        out[from..]
            .iter_mut()
            .for_each(|event| event.set_subagent_run_id(subagent));
    }
}

fn started(run: &TranslateRun) -> Event {
    let input = &run.input;
    let mut started = RunStarted::new(input.thread_id.clone(), input.run_id.clone());
    started.protocol_version = Some(PROTOCOL_VERSION.into());
    started.parent_run_id = input.parent_run_id.clone();
    started.into()
}

fn finished(run: &TranslateRun, outcome: Option<RunOutcome>) -> RunFinished {
    let input = &run.input;
    let mut finished = RunFinished::new(input.thread_id.clone(), input.run_id.clone());
    finished.outcome = outcome;
    finished.with_usage(usage(run))
}

/// Returns what a client is told of a run that has ended otherwise than with a whole answer. The
/// protocol has no outcome for that: what its clients give to the application is the result.
fn unfinished(reason: &EndReason) -> Option<Value> {
    let (reason, message) = match reason {
        EndReason::Completed | EndReason::Interrupted(_) => return None,
        EndReason::NoAnswer(why) => (no_answer(*why), Some(why.to_string())),
        EndReason::StopCondition => ("stop_condition", None),
        EndReason::EndedByCallback => ("ended_by_callback", None),
        EndReason::IterationLimit => ("iteration_limit", None),
        _ => ("other", None),
    };
    let mut result = json!({ "endReason": reason });
    if let Some(message) = message {
        result["message"] = message.into();
    }
    Some(result)
}

fn no_answer(why: NoAnswer) -> &'static str {
    match why {
        NoAnswer::CutOff => "cut_off",
        NoAnswer::Filtered => "filtered",
        NoAnswer::Refused => "refused",
        NoAnswer::Empty => "empty",
        _ => "no_answer",
    }
}

fn usage(run: &TranslateRun) -> Option<TokenUsage> {
    // A run without a model call has measured nothing, which is not the same as none.
    Some(run.context.usage())
        .filter(|usage| usage.total() > 0)
        .map(TokenUsage::from)
}

fn interrupted(
    run: &TranslateRun,
    pending: &[tower_agent::error::Interrupt],
    out: &mut Vec<Event>,
) {
    out.push(Event::state_snapshot(run.context.state().snapshot()));
    out.push(lock(&run.shown).snapshot());
    // A call of the client's own tool is no interrupt in the protocol: the client answers it in its
    // next request, and a run that waits for such calls alone has succeeded.
    let (calls, questions): (Vec<_>, Vec<_>) = pending
        .iter()
        .partition(|interrupt| interrupt.reason == client_tool::REASON);
    // A client that reads of a question must answer it before it can go on, so it reads only of
    // those that it can answer.
    let (questions, others): (Vec<_>, Vec<_>) = questions
        .into_iter()
        .partition(|interrupt| run.roles.may_answer(&interrupt.answerer));
    if !others.is_empty() {
        out.push(waiting(run, &others));
    }
    let interrupts: Vec<_> = questions
        .into_iter()
        .map(|pending| {
            let mut interrupt = Interrupt::from(pending);
            interrupt.id = run.interrupt_ids.of(&pending.id);
            interrupt
        })
        .collect();
    let outcome = if interrupts.is_empty() {
        // Clients of earlier versions reject the list, and find the calls without it.
        let calls = calls.into_iter().filter(|_| run.speaks_1_0());
        RunOutcome::Success {
            pending_tool_call_ids: calls
                .filter_map(|call| call.call())
                .map(Arc::from)
                .collect(),
        }
    } else {
        RunOutcome::Interrupt { interrupts }
    };
    out.push(finished(run, Some(outcome)).into());
}

/// Returns the activity that shows whom the thread waits for: nobody if there are no questions. It
/// says nothing of the questions, which are not for this client.
fn waiting(run: &TranslateRun, questions: &[&tower_agent::error::Interrupt]) -> Event {
    let mut waits = Vec::new();
    for question in questions {
        waits.push(json!({
            "role": question.answerer.role(),
            "toolCallId": question.call(),
        }));
    }
    // One for the thread: the next one replaces it.
    let id = format!("{}-waiting", run.input.thread_id);
    let content = Map::from_iter([("for".to_owned(), Value::Array(waits))]);
    Event::activity_snapshot(id, WAITING, content)
}

fn entered(invocation: &Invocation) -> Option<Event> {
    // An agent that goes on speaks in its caller's conversation: to the client it is the same one.
    let caller = invocation.caller.as_ref().filter(|_| !invocation.goes_on)?;
    let mut started = SubagentStarted::new(invocation.id.clone(), invocation.agent());
    started.parent_tool_call_id = invocation.tool_call.clone();
    let caller = caller.conversation();
    started.parent_subagent_run_id = (caller.number > 1).then(|| caller.id.clone());
    Some(started.into())
}

fn left(
    invocation: &Invocation,
    pending: &[tower_agent::error::Interrupt],
    error: Option<Error>,
    run: &TranslateRun,
) -> Option<Event> {
    invocation.caller.as_ref().filter(|_| !invocation.goes_on)?;
    let subagent_run_id = invocation.id.clone();
    let left = match error {
        Some(error) => Sent::SubagentError {
            subagent_run_id,
            message: run.message_of(&error),
            code: Some(code(error.kind()).into()),
        },
        None => Sent::SubagentFinished {
            subagent_run_id,
            result: None,
            outcome: (!pending.is_empty()).then(|| SubagentOutcome::Suspended {
                interrupt_ids: pending
                    .iter()
                    .filter(|interrupt| run.roles.may_answer(&interrupt.answerer))
                    .map(|interrupt| run.interrupt_ids.of(&interrupt.id))
                    .collect(),
            }),
        },
    };
    Some(left.into())
}

fn step(invocation: &Invocation, iteration: u32) -> String {
    format!("{} {iteration}", invocation.path)
}

/// Agents that speak in another agent's conversation send their name.
fn text_start(invocation: &Invocation, message_id: Arc<str>) -> Event {
    let name = invocation.goes_on.then(|| invocation.agent().into());
    Sent::TextMessageStart {
        message_id,
        role: Some(TextRole::Assistant),
        name,
    }
    .into()
}

fn without(run: &TranslateRun, message: &Arc<str>) -> Event {
    let shown = lock(&run.shown);
    let discarded: Vec<_> = shown
        .messages()
        .iter()
        .filter(|shown| is_of(&shown.id, message))
        .map(|shown| shown.id.clone())
        .collect();
    shown.snapshot_without(&discarded)
}

/// Returns whether the id is the message's, or that of its reasoning.
fn is_of(id: &str, message: &str) -> bool {
    id == message || matches!(IdPart::split(id), Some((of, IdPart::Reasoning(_))) if of == message)
}

/// Returns the error's code on the wire.
fn code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Aborted => "stop_agent_error",
        other => other.code(),
    }
}

/// Creates the end of a run that has failed.
pub(crate) fn failed(error: &Error, run: &TranslateRun) -> RunError {
    RunError::new(run.message_of(error)).with_code(code(error.kind()))
}

impl From<&tower_agent::error::Interrupt> for Interrupt {
    fn from(pending: &tower_agent::error::Interrupt) -> Self {
        let mut interrupt = Self::new(pending.id.as_str(), pending.reason.as_str());
        interrupt.message = pending.message.clone();
        interrupt.tool_call_id = pending.call().map(Arc::from);
        interrupt.expires_at = pending.expiry.as_ref().map(|expiry| iso_8601(expiry.at));
        if let Value::Object(schema) = &pending.response_schema {
            interrupt.response_schema = Some(schema.clone());
        }
        interrupt.metadata = match &pending.payload {
            Value::Null => None,
            Value::Object(payload) => Some(payload.clone()),
            other => Some(Map::from_iter([("payload".to_owned(), json!(other))])),
        };
        interrupt
    }
}
