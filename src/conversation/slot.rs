//! The state of the tool calls of a turn.

use super::call_name::CallName;
use super::repair::refusal;
use crate::message::{Message, Role, ToolCall, ToolResult};

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

    pub(crate) fn answers_mut(&mut self) -> &mut [Message] {
        match self {
            Self::Open | Self::Begun(_) => &mut [],
            Self::Answered(message) => std::slice::from_mut(message),
            Self::Many(messages) => messages,
        }
    }

    pub(crate) fn identify(&mut self, name: &CallName) {
        name.identify(self.answers_mut().iter_mut());
    }
}

/// Closes the calls that have started and not ended, and returns their results. A call that
/// `is_resumable` becomes open again.
pub(super) fn stop(
    calls: &mut [(CallName, Slot)],
    is_resumable: impl Fn(&CallName) -> bool,
) -> Vec<(CallName, Message)> {
    let mut stopped = Vec::new();
    for (name, slot) in calls {
        let Slot::Begun(call) = slot else {
            continue;
        };
        // An agent in the call continues by itself, so the call is made again for that.
        if is_resumable(name) {
            *slot = Slot::Open;
        } else {
            let mut answer = refusal(call, ToolResult::STOPPED);
            name.identify_result(&mut answer);
            stopped.push((name.clone(), answer.clone()));
            *slot = Slot::Answered(answer);
        }
    }
    stopped
}

/// Returns whether a message is the result of a call, and not one that the call has brought
/// besides.
pub(super) fn is_answer(message: &Message) -> bool {
    message.role() == Role::Tool && message.tool_results().next().is_some()
}

/// Returns the messages of a turn. Those that are no results are held while calls are open, or if
/// the conversation `holds` earlier ones of the turn.
pub(super) fn settled(calls: &[(CallName, Slot)], holds: bool) -> impl Iterator<Item = Message> {
    let holds = holds || calls.iter().any(|(_, slot)| matches!(slot, Slot::Open));
    // Results stay together, directly after their calls.
    let slots = calls.iter().map(|(_, slot)| slot.answers());
    let results = slots.clone().flatten().filter(|message| is_answer(message));
    let others = slots.flat_map(move |answers| {
        let result = answers.iter().flat_map(Message::tool_results).next();
        let others = answers.iter().filter(|message| !is_answer(message));
        others.map(move |message| match result {
            Some(result) if holds => message.clone().held(&result.call_id),
            _ => message.clone(),
        })
    });
    results.cloned().chain(others)
}
