//! What happened in a program, in the form that the driver of the original prints.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tower_agent::message::Messages;
use tower_agent::{Message, ModelRequest, Role};

/// What happened in a program.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Whether each run failed.
    pub(super) failed: Vec<bool>,
    /// The hooks and tools that ran, in order.
    pub(super) log: Vec<String>,
    /// `[role, text, calls]` or `["tool", call, text]`
    pub(super) messages: Vec<Value>,
    /// What the models were asked, in order.
    pub(super) requests: Vec<Asked>,
    pub(super) state: Map<String, Value>,
}

/// What a model was asked.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Asked {
    system: String,
    messages: Vec<Value>,
    tools: Vec<String>,
}

impl Seen {
    /// Returns each of the things seen beside the same of the original.
    pub(super) fn beside(&self, original: &Self) -> Vec<(&'static str, Value, Value)> {
        vec![
            ("failed", json!(self.failed), json!(original.failed)),
            ("log", json!(self.log), json!(original.log)),
            ("messages", json!(self.messages), json!(original.messages)),
            ("requests", json!(self.requests), json!(original.requests)),
            ("state", json!(self.state), json!(original.state)),
        ]
    }
}

impl Asked {
    pub(super) fn of(request: &ModelRequest) -> Self {
        let names = request.tools().iter().map(|tool| tool.name().to_owned());
        let mut tools: Vec<_> = names.collect();
        tools.sort();
        Self {
            system: request.instructions().unwrap_or_default().to_owned(),
            messages: shown(request.messages()),
            tools,
        }
    }
}

/// Returns messages in the common form.
pub(super) fn shown(messages: &Messages) -> Vec<Value> {
    messages.iter().flat_map(one).collect()
}

fn one(message: &Message) -> Vec<Value> {
    let results = message.tool_results().map(|result| {
        let text = if result.is_error {
            "error".to_owned()
        } else {
            result.text()
        };
        json!(["tool", &*result.call_id, text])
    });
    let results: Vec<_> = results.collect();
    if !results.is_empty() {
        return results;
    }
    let role = match message.role() {
        Role::User => "user",
        _ => "assistant",
    };
    let calls = message
        .tool_calls()
        .map(|call| json!([&*call.id, &*call.name, call.arguments.value()]));
    let calls: Vec<_> = calls.collect();
    if calls.is_empty() {
        return vec![json!([role, message.text()])];
    }
    vec![json!([role, message.text(), calls])]
}
