//! The answers of OpenAI's chat completions, whole and streamed.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};
use tower_agent::message::FinishReason;
use tower_agent::stream::EventKind;
use tower_agent::{Message, ModelRequest, ModelResponse, Part, Usage};

/// Returns the body of a whole answer.
pub(crate) fn completion(id: &str, response: &ModelResponse) -> Value {
    let message = response.message();
    let calls = message.tool_calls().map(|call| {
        json!({
            "id": call.id, "type": "function",
            "function": { "name": call.name, "arguments": call.arguments.as_str() },
        })
    });
    let calls: Vec<_> = calls.collect();
    let is_refusal = *response.finish_reason() == FinishReason::Refusal;
    let text = Some(message.text()).filter(|text| !text.is_empty() || calls.is_empty());
    let mut answer = if is_refusal {
        json!({ "role": "assistant", "content": null, "refusal": text })
    } else {
        json!({ "role": "assistant", "content": text })
    };
    if let Some(thoughts) = reasoning(message) {
        answer["reasoning_content"] = thoughts.into();
    }
    if !calls.is_empty() {
        answer["tool_calls"] = calls.into();
    }
    json!({
        "id": id, "object": "chat.completion", "created": now(),
        "model": response.metadata().model,
        "choices": [{
            "index": 0, "message": answer,
            "finish_reason": finish_reason(response),
        }],
        "usage": usage(response.usage()),
    })
}

/// Returns what the model has thought, in the field in which several servers have it.
fn reasoning(message: &Message) -> Option<String> {
    let thoughts = message.parts().iter().filter_map(|part| match part {
        Part::Reasoning(thought) => Some(&*thought.text),
        _ => None,
    });
    Some(thoughts.collect::<String>()).filter(|text| !text.is_empty())
}

/// Returns the reason in the protocol's words, which has none for a refusal.
fn finish_reason(response: &ModelResponse) -> String {
    match response.finish_reason() {
        FinishReason::Refusal => "stop".to_owned(),
        reason => reason.to_string(),
    }
}

/// Returns the time in seconds, as the protocol has it.
fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.unwrap_or_default().as_secs()
}

fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total(),
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_input_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens },
    })
}

/// The chunks of a streamed answer.
pub(crate) struct Chunks {
    id: String,
    model: String,
    created: u64,
    with_usage: bool,
    /// The role was sent, which comes with the first piece.
    has_role: bool,
    /// The calls so far, by the id that events have.
    calls: Vec<Arc<str>>,
}

impl Chunks {
    pub(crate) fn new(id: &str, request: &ModelRequest, with_usage: bool) -> Self {
        Self {
            id: id.to_owned(),
            model: request.settings().model.clone().unwrap_or_default(),
            created: now(),
            with_usage,
            has_role: false,
            calls: Vec::new(),
        }
    }

    /// Returns the chunk for an event, if a client sees it.
    pub(crate) fn of(&mut self, event: &EventKind) -> Option<Value> {
        let delta = match event {
            EventKind::TextDelta { text, .. } => json!({ "content": text }),
            EventKind::ReasoningDelta { text, .. } => json!({ "reasoning_content": text }),
            EventKind::ToolCallStart(start) => {
                self.calls.push(start.id.clone());
                json!({ "tool_calls": [{
                    "index": self.calls.len() - 1, "id": start.call_id, "type": "function",
                    "function": { "name": start.name, "arguments": "" },
                }] })
            }
            EventKind::ToolCallDelta { id, json: text } => {
                let index = self.calls.iter().position(|call| call == id)?;
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] })
            }
            _ => return None,
        };
        Some(self.piece(delta, None))
    }

    /// Returns a chunk with the next piece of the answer.
    fn piece(&mut self, mut delta: Value, finish_reason: Option<String>) -> Value {
        if !std::mem::replace(&mut self.has_role, true) {
            delta["role"] = json!("assistant");
        }
        self.chunk(json!([{ "index": 0, "delta": delta, "finish_reason": finish_reason }]))
    }

    /// Returns the last chunks.
    pub(crate) fn end(&mut self, response: &ModelResponse) -> Vec<Value> {
        let mut chunks = vec![self.piece(json!({}), Some(finish_reason(response)))];
        if self.with_usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = usage(response.usage());
            chunks.push(chunk);
        }
        chunks
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}
