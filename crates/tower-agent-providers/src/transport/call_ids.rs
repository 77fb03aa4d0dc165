//! Ids of calls that are unique in a request.
//!
//! Some servers number the calls of each answer anew, and others refuse a conversation in which an
//! id stands twice. So a later call with the id of an earlier one is sent under another id, and its
//! result with it. What the conversation itself says is not changed.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::protocol::fnv1a;
use tower_agent::message::{Messages, Part, ToolCall};

/// The length of an id that every provider accepts.
const MAX: usize = 40;

/// Returns whether an id may stand twice. Two ids are rarely taken for the same one.
pub(super) fn may_repeat(messages: &Messages) -> bool {
    // Sorted numbers cost less than a table of texts, and this is asked before every call.
    let mut hashes = Vec::new();
    for message in messages {
        hashes.extend(message.tool_calls().map(|call| hash(&call.id)));
    }
    hashes.sort_unstable();
    hashes.windows(2).any(|two| two[0] == two[1])
}

/// A hash of the bytes, eight at a time.
fn hash(id: &str) -> u64 {
    let chunks = id.as_bytes().chunks(8);
    chunks.fold(id.len() as u64, |hash, chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(bytes))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(29)
    })
}

/// A call, as it is sent.
struct SentCall {
    message: usize,
    id: Arc<str>,
    has_result: bool,
}

/// Gives every call of a conversation an id of its own. It depends only on what is before the call,
/// so that a request begins with the bytes of the one before. `provider` is the key of the data
/// that is sent.
pub(super) fn make_unique(messages: &mut Messages, provider: &str) {
    let mut sent: HashMap<Arc<str>, Vec<SentCall>> = HashMap::new();
    for index in 0..messages.len() {
        // Read first: asking for mutable parts copies them, and most messages stay as they are.
        let mut renamed = Vec::new();
        for (number, part) in messages[index].parts().iter().enumerate() {
            let (old, new) = match part {
                Part::ToolCall(call) => {
                    let calls = sent.entry(call.id.clone()).or_default();
                    let id = match calls.len() {
                        0 => call.id.clone(),
                        earlier => another(&call.id, earlier),
                    };
                    calls.push(SentCall {
                        message: index,
                        id: id.clone(),
                        has_result: false,
                    });
                    (&call.id, id)
                }
                Part::ToolResult(result) => {
                    let calls = sent.get_mut(&result.call_id);
                    match calls.and_then(|calls| waiting(calls)) {
                        Some(call) => {
                            call.has_result = true;
                            (&result.call_id, call.id.clone())
                        }
                        None => continue,
                    }
                }
                _ => continue,
            };
            if *old != new {
                renamed.push((number, new));
            }
        }
        if renamed.is_empty() {
            continue;
        }
        let Some(message) = messages.get_mut(index) else {
            continue;
        };
        for (number, id) in renamed {
            match &mut message.parts_mut()[number] {
                Part::ToolCall(call) => rename(call, id, provider),
                Part::ToolResult(result) => result.call_id = id,
                _ => {}
            }
        }
    }
}

/// Returns the call that the next result of an id belongs to: the first without one in the latest
/// message that has such calls.
fn waiting(calls: &mut [SentCall]) -> Option<&mut SentCall> {
    let latest = calls.last()?.message;
    let last = calls.len() - 1;
    let found = calls
        .iter()
        .position(|call| call.message == latest && !call.has_result);
    calls.get_mut(found.unwrap_or(last))
}

/// Returns the id of a call whose own has been sent so many times.
fn another(id: &str, earlier: usize) -> Arc<str> {
    let hash = format!("_{:016x}", fnv1a(&format!("{id}\n{earlier}")));
    let mut end = id.len().min(MAX - hash.len());
    while !id.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{hash}", &id[..end]).into()
}

fn rename(call: &mut ToolCall, id: Arc<str>, provider: &str) {
    let old = std::mem::replace(&mut call.id, id);
    // The provider's own data may repeat the id, in the field that the protocol has for it.
    if let Some(Value::Object(fields)) = call.provider.get(provider) {
        let mut fields = fields.clone();
        fields.retain(|_, value| *value != *old);
        call.provider.set(provider, Value::Object(fields));
    }
}
