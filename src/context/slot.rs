//! What is known of the tool calls of a turn.

use std::sync::Arc;

use crate::message::{Message, Part, Role, ToolCall, ToolResult};

/// What the model is told of a call that was dropped while it ran.
const STOPPED: &str = "stopped: the run ended while this tool was running, and what it has done is \
                       not known";

/// What is known of one call of a turn.
#[derive(Clone, Debug, Default)]
pub(crate) enum Slot {
    /// It has not begun, or it waits for an answer from outside: a run that resumes makes it.
    #[default]
    Open,
    /// It has begun, and may have had an effect: made again, it might have two. If it does not end,
    /// this is its answer.
    Begun(ToolCall),
    /// One message, nearly always.
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

/// Answers the calls that have begun and not ended, and returns the answers. One that
/// `is_resumable` is open again.
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
                let answer =
                    Message::tool(ToolResult::new(call, [Part::from_text(STOPPED)]).failed());
                stopped.push(answer.clone());
                Slot::Answered(answer)
            };
        }
    }
    stopped
}

/// What a turn has come to.
pub(super) fn settle(calls: &[(Arc<str>, Slot)]) -> Vec<Message> {
    let said = || calls.iter().flat_map(|(_, slot)| slot.answers());
    let is_answer = |message: &&Message| message.role() == Role::Tool;
    // Answers stand together, right behind their calls.
    let answers = said().filter(is_answer).cloned();
    // Another's words would end the turn, and with it the calls that are still open.
    let is_open = calls.iter().any(|(_, slot)| matches!(slot, Slot::Open));
    let others = said().filter(|message| !is_answer(message)).map(|message| match is_open {
        true => Message::new(Role::Tool, message.parts().iter().cloned()),
        false => message.clone(),
    });
    answers.chain(others).collect()
}
