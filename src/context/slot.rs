//! The state of the tool calls of a turn.

use std::sync::Arc;

use crate::message::{Message, Part, Role, ToolCall, ToolResult};

/// The result of a call that was dropped while it ran.
const STOPPED: &str = "stopped: the run ended while this tool was running; its outcome is unknown";

/// The state of one call of a turn.
#[derive(Clone, Debug, Default)]
pub(crate) enum Slot {
    /// Not started, or waiting for a result from outside: a resumed run executes it.
    #[default]
    Open,
    /// Started, and possibly with an effect, which a second call might repeat. If it does not end,
    /// this is its result.
    Begun(ToolCall),
    /// Usually one message.
    Answered(Message),
    Many(Vec<Message>),
}

impl Slot {
    pub(crate) fn answers(&self) -> &[Message] {
        match self {
            Self::Open | Self::Begun(_) => &[],
            Self::Answered(message) => std::slice::from_ref(message),
            Self::Many(messages) => messages,
        }
    }
}

/// Closes the calls that have started and not ended, and returns their results. A call that
/// `is_resumable` becomes open again.
pub(super) fn stop(
    calls: &mut [(Arc<str>, Slot)],
    is_resumable: impl Fn(&str) -> bool,
) -> Vec<Message> {
    let mut stopped = Vec::new();
    for (id, slot) in calls {
        if let Slot::Begun(call) = slot {
            *slot = if is_resumable(id) {
                Slot::Open
            } else {
                let answer = stopped_answer(call);
                stopped.push(answer.clone());
                Slot::Answered(answer)
            };
        }
    }
    stopped
}

/// Returns the result of a call that was started and whose outcome is unknown.
pub(super) fn stopped_answer(call: &ToolCall) -> Message {
    Message::tool(ToolResult::new(call, [Part::from_text(STOPPED)]).failed())
}

/// Passes on the messages of a turn.
pub(super) fn settle(calls: &[(Arc<str>, Slot)], mut push: impl FnMut(Message)) {
    let is_answer =
        |message: &Message| message.role() == Role::Tool && message.tool_results().next().is_some();
    // Results stay together, directly after their calls.
    let mut others = false;
    for (_, slot) in calls {
        for message in slot.answers() {
            if is_answer(message) {
                push(message.clone());
            } else {
                others = true;
            }
        }
    }
    if !others {
        return;
    }
    // Any other message would end the turn and close the calls that are still open.
    let is_open = calls.iter().any(|(_, slot)| matches!(slot, Slot::Open));
    for message in calls.iter().flat_map(|(_, slot)| slot.answers()) {
        if !is_answer(message) {
            push(match is_open {
                true => Message::new(Role::Tool, message.parts().iter().cloned()),
                false => message.clone(),
            });
        }
    }
}
