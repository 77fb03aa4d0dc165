//! Any event of AG-UI at all.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use tower_agent_agui::{
    EncryptedEntity, Event, EventKind, Interrupt, Message, MessageKind, RunAgentInput, RunFinished,
    RunOutcome, RunStarted, SubagentStarted, ToolCall,
};

/// Any event at all, of few names.
pub fn any_event(names: &'static [&'static str]) -> impl Strategy<Value = Event> {
    let id = move || prop::sample::select(names);
    let maybe = || prop::sample::select(vec![None, None, Some("a"), Some("b")]);
    let tag = prop::sample::select(vec![None, None, None, Some("s"), Some("a"), Some("")]);
    (0..38_u8, id(), id(), maybe(), tag).prop_map(|(kind, id, other, maybe, tag)| {
        let event = event(kind, id, other, maybe.map(Arc::from));
        match tag {
            Some(tag) => event.with_subagent_run_id(tag),
            None => event,
        }
    })
}

fn history(id: &str, call: &str, owner: Option<Arc<str>>) -> Vec<Message> {
    let tool_calls = vec![ToolCall::new(call, "add", "{}")];
    let mut asks = Message::new(
        id,
        MessageKind::Assistant {
            content: None,
            tool_calls,
        },
    );
    asks.subagent_run_id.clone_from(&owner);
    let mut thinks = Message::new(
        call,
        MessageKind::Reasoning {
            content: String::new(),
        },
    );
    thinks.subagent_run_id = owner;
    vec![asks, thinks]
}

fn event(kind: u8, id: &str, other: &str, maybe: Option<Arc<str>>) -> Event {
    match kind {
        0 => Event::run_started("t", "r"),
        1 => Event::run_started("t", other),
        2 => {
            let mut started = RunStarted::new("t", "r");
            started.input = Some(RunAgentInput::new("t", "r", history(id, other, maybe)));
            started.into()
        }
        3 => Event::run_finished("t", "r"),
        4 => Event::run_finished(other, "r"),
        5 => {
            let interrupts = maybe
                .iter()
                .map(|id| Interrupt::new(id.clone(), "x:y"))
                .collect();
            RunFinished::new("t", "r")
                .with_outcome(RunOutcome::Interrupt { interrupts })
                .into()
        }
        6 => RunFinished::new("t", "r")
            .with_outcome(RunOutcome::Cancelled)
            .into(),
        7 => Event::run_error("no"),
        8 => Event::step_started(id),
        9 => Event::step_finished(id),
        10 | 35 => Event::text_start(id),
        11 => Event::text_content(id, "x"),
        12 => Event::text_end(id),
        13 | 36 => EventKind::TextMessageChunk {
            message_id: maybe,
            role: None,
            name: None,
            delta: (other != "a").then(|| "x".into()),
        }
        .into(),
        14 | 37 => Event::tool_call_start(id, "add", maybe),
        15 => Event::tool_call_args(id, "{"),
        16 => Event::tool_call_end(id),
        17 => EventKind::ToolCallChunk {
            tool_call_id: maybe.clone(),
            tool_call_name: (id != "a").then(|| "add".into()),
            parent_message_id: (id == "b").then(|| other.into()),
            delta: (other != "a").then(|| "{".into()),
        }
        .into(),
        18 => Event::tool_call_result(id, other, "3"),
        19 => Event::state_snapshot(json!({})),
        20 => Event::state_delta(Default::default()),
        21 => Event::messages_snapshot(history(id, other, maybe)),
        22 => EventKind::ActivitySnapshot {
            message_id: id.into(),
            activity_type: "PLAN".into(),
            content: Default::default(),
            replace: maybe.map(|id| &*id == "a"),
        }
        .into(),
        23 => Event::activity_delta(id, "PLAN", Default::default()),
        24 => Event::reasoning_start(id),
        25 => Event::reasoning_message_start(id),
        26 => Event::reasoning_message_content(id, "x"),
        27 => Event::reasoning_message_end(id),
        28 => EventKind::ReasoningMessageChunk {
            message_id: maybe,
            delta: (other != "a").then(|| "x".into()),
        }
        .into(),
        29 => Event::reasoning_end(id),
        30 => {
            let kinds = [EncryptedEntity::ToolCall, EncryptedEntity::Message];
            Event::reasoning_encrypted_value(kinds[usize::from(other == "a")], id, "sealed")
        }
        31 => {
            let mut started = SubagentStarted::new(id, "helper");
            started.parent_subagent_run_id = maybe;
            started.into()
        }
        32 => Event::subagent_finished(id),
        33 => Event::subagent_error(id, "no"),
        34 => Event::raw(Value::Null),
        _ => Event::custom("mine", Value::Null),
    }
}
