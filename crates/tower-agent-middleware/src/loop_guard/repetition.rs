use std::collections::BTreeSet;
use std::sync::Arc;

use tower_agent::message::{Message, Messages, Role, ToolCall, ToolResult};

/// A call that was made more than once.
#[derive(Debug)]
pub(super) struct Repetition {
    pub(super) tool: Arc<str>,
    /// The number of calls, the last included.
    pub(super) calls: usize,
}

/// A call and its result.
#[derive(Clone, Copy)]
struct Answered<'a> {
    call: &'a ToolCall,
    result: &'a ToolResult,
}

impl Answered<'_> {
    fn is_same_as(self, other: Self) -> bool {
        let is_same_call = self.call.name == other.call.name
            && self.call.arguments.value() == other.call.arguments.value();
        let is_same_result = self.result.is_error == other.result.is_error
            && self.result.parts == other.result.parts;
        is_same_call && is_same_result
    }
}

/// Returns the call of the last turn that was made most often since the last message of the user,
/// if one was repeated.
pub(super) fn find(messages: &Messages, except: &BTreeSet<Arc<str>>) -> Option<Repetition> {
    // Otherwise no turn has just ended.
    messages.last().filter(|last| last.role() == Role::Tool)?;
    let before_user = messages
        .iter()
        .rev()
        .take_while(|message| message.role() != Role::User);
    let start = messages.len() - before_user.count();
    let (all, last_turn) = answered_calls(messages.range(start), except);
    let repetitions = all[last_turn..].iter().map(|latest| Repetition {
        tool: latest.call.name.clone(),
        calls: all.iter().filter(|call| call.is_same_as(*latest)).count(),
    });
    repetitions
        .max_by_key(|repetition| repetition.calls)
        .filter(|repetition| repetition.calls > 1)
}

/// Returns the calls with their results, oldest first, and the index of the first one of the last
/// turn.
fn answered_calls<'a>(
    messages: impl Iterator<Item = &'a Message>,
    except: &BTreeSet<Arc<str>>,
) -> (Vec<Answered<'a>>, usize) {
    let mut all = Vec::new();
    let mut last_turn = 0;
    let mut calling: Option<&Message> = None;
    for message in messages {
        if message.role() == Role::Assistant {
            calling = Some(message);
            last_turn = all.len();
        }
        for result in message.tool_results() {
            // Ids of calls are unique in their message alone.
            let call = calling
                .into_iter()
                .flat_map(Message::tool_calls)
                .find(|call| call.id == result.call_id);
            if let Some(call) = call
                && !except.contains(&call.name)
            {
                all.push(Answered { call, result });
            }
        }
    }
    (all, last_turn)
}
