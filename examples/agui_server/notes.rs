//! Sends the decisions of callbacks to the page.

use serde_json::json;
use tower_agent::stream::{CallbackDecision, CallbackNote, EventKind, Invocation};
use tower_agent::{Action, Callback, ErrorKind};
use tower_agent_agui::{Event, TranslateRequest, TranslateResponse, before_translate};

/// By default clients receive no events about callbacks; this sends them as `CUSTOM` events.
pub(crate) fn tell_callbacks() -> impl Callback<TranslateRequest> {
    before_translate(|request| match &request.event().kind {
        EventKind::Callback(note) => {
            Action::Respond(told(note, &request.event().invocation).into())
        }
        _ => Action::<TranslateResponse>::Continue,
    })
}

/// Includes the data that pairs each `after` with its `before`.
fn told(note: &CallbackNote, invocation: &Invocation) -> Event {
    let mut value = json!({
        "callback": note.callback,
        "hook": note.hook,
        "call": note.call.to_string(),
        "agent": invocation.agent(),
        "invocation": invocation.id,
        "toolCallId": note.tool_call,
        "decision": decision(&note.decision),
    });
    if let Some(name) = &note.name {
        value["name"] = json!(name);
    }
    Event::custom("callback", value)
}

fn decision(decision: &CallbackDecision) -> String {
    let word = match decision {
        CallbackDecision::Continue => "continue",
        CallbackDecision::SkipRest => "skip rest",
        CallbackDecision::Respond => "respond",
        CallbackDecision::Propagate => "propagate",
        CallbackDecision::Fail => "fail",
        CallbackDecision::Retry => "retry",
        CallbackDecision::Fallback => "fallback",
        // An interrupt is not a failure.
        CallbackDecision::Failed(ErrorKind::Interrupted) => "waits",
        CallbackDecision::Failed(kind) => return format!("error: {kind}"),
        _ => "something else",
    };
    word.to_owned()
}
