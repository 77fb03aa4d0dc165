//! A run, seen while it happens.

mod attempts;
mod events;
mod first_output;
mod hooks;
mod mappers;
mod pieces;
mod pressure;
mod teams;
mod threads;
mod transcript;

use futures::StreamExt;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{AgentResponse, Message, ModelResponse, Part, Result, Role, RunStream};

/// An answer of thoughts alone.
fn thinks(thought: &str) -> ModelResponse {
    ModelResponse::new(Message::new(Role::Assistant, [Part::reasoning(thought)]))
}

/// Reads a run to its end.
async fn read(mut run: RunStream) -> (Vec<Event>, Result<AgentResponse>) {
    let events = run.by_ref().collect().await;
    (events, run.response().await)
}

/// Returns the place of a call in its message, which ends its id.
fn place(id: &str) -> &str {
    id.rsplit('-').next().unwrap()
}

/// An event in a word or two, without names of messages, which differ from run to run.
fn word(event: &Event) -> String {
    match &event.kind {
        EventKind::RunStarted { .. } => "run".into(),
        EventKind::RunFinished { .. } => "finished".into(),
        EventKind::RunInterrupted { .. } => "interrupted".into(),
        EventKind::RunFailed { error } => format!("failed: {}", error.kind()),
        EventKind::AgentStarted => format!("> {}", event.invocation.path),
        EventKind::AgentFinished { error: None, .. } => format!("< {}", event.invocation.path),
        EventKind::AgentFinished {
            error: Some(error), ..
        } => {
            format!("< {}: {}", event.invocation.path, error.kind())
        }
        EventKind::StepStarted { iteration } => format!("step {iteration}"),
        EventKind::StepFinished { iteration, .. } => format!("step {iteration} over"),
        EventKind::TextStart { .. } => "text".into(),
        EventKind::TextDelta { text, .. } => format!("+{text}"),
        EventKind::TextEnd { .. } => "text over".into(),
        EventKind::ReasoningStart { .. } => "reasoning".into(),
        EventKind::ReasoningDelta { text, .. } => format!("~{text}"),
        EventKind::ReasoningEnd { .. } => "reasoning over".into(),
        EventKind::ToolCallStart(call) => format!("{}: {}", place(&call.id), call.name),
        EventKind::ToolCallDelta { id, json } => format!("{}: +{json}", place(id)),
        EventKind::ToolCallEnd { id } => format!("{}: over", place(id)),
        EventKind::ToolResult(result) if result.is_error => {
            format!("{} -> error", result.call_id)
        }
        EventKind::ToolResult(result) => {
            format!(
                "{} -> {}",
                result.call_id,
                result
                    .parts
                    .iter()
                    .filter_map(|part| part.as_text())
                    .collect::<String>()
            )
        }
        EventKind::StateSnapshot { state } => format!("state {}", serde_json::json!(state)),
        EventKind::StateDelta { delta } => format!("delta {}", serde_json::json!(delta)),
        EventKind::Usage { usage } => format!("{} tokens", usage.total()),
        EventKind::AttemptDiscarded { .. } => "discarded".into(),
        EventKind::ResponseReplaced { .. } => "replaced".into(),
        EventKind::AttemptFailed(failed) => {
            format!(
                "{} {} failed: {}",
                failed.call, failed.attempt, failed.error
            )
        }
        EventKind::AnswerRejected { error } => format!("rejected: {}", error.kind()),
        EventKind::Callback(note) => {
            format!(
                "{} {} {}: {:?}",
                note.callback, note.call, note.hook, note.decision
            )
        }
        EventKind::Custom { name, value } => format!("{name} {value}"),
        other => panic!("an event that this test does not know: {other:?}"),
    }
}

fn words(events: &[Event]) -> Vec<String> {
    events.iter().map(word).collect()
}
