//! What happened in a program, in the form that the driver of the original prints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tower_agent::message::{Messages, ToolResult};
use tower_agent::{
    Agent, AgentRequest, Checkpoint, Message, ModelRequest, Part, Resolution, Role, State,
};
use tower_agent_middleware::approval::Decision;

use super::Says;

/// What happened in a program.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Seen {
    pub(super) turns: Vec<Said>,
    /// What each model was asked.
    pub(super) requests: BTreeMap<String, Vec<Asked>>,
    /// The callbacks that ran, in order.
    pub(super) hooks: Vec<String>,
    pub(super) state: Map<String, Value>,
}

/// What was said after one message of the user.
#[derive(Serialize, Deserialize)]
pub(super) struct Said {
    /// `[author, kind, ..]`
    events: Vec<Value>,
    failed: bool,
    /// The calls that wait for an answer.
    waits: Vec<String>,
}

/// What a model was asked.
#[derive(Serialize, Deserialize)]
pub(super) struct Asked {
    /// `[kind, ..]`
    contents: Vec<Value>,
    tools: Vec<String>,
    /// The agents that it may transfer to.
    transfer: Value,
    instruction: String,
}

impl Seen {
    /// Returns each of the things seen beside the same of the original.
    pub(super) fn beside(&self, original: &Self) -> Vec<(&'static str, Value, Value)> {
        vec![
            ("turns", json!(self.turns), json!(original.turns)),
            ("requests", json!(self.requests), json!(original.requests)),
            ("hooks", json!(self.hooks), json!(original.hooks)),
            ("state", json!(self.state), json!(original.state)),
        ]
    }

    /// Runs a turn, and returns where the next one begins.
    pub(super) async fn turn(
        &mut self,
        root: &Agent,
        before: Option<Checkpoint>,
        says: &Says,
        state: &State,
    ) -> Checkpoint {
        let request = match (before, says) {
            (Some(before), Says::Text(text)) => AgentRequest::resume(before).with_message(&**text),
            (Some(before), Says::Answer { answer }) => {
                let question = before.head.interrupts[0].id.clone();
                let answer = Resolution::resolved(question, decision(answer));
                AgentRequest::resume(before).with_resolutions([answer])
            }
            (None, Says::Text(text)) => AgentRequest::new(text),
            (None, Says::Answer { .. }) => panic!("nothing waits yet"),
        };
        let from = request.messages().len();
        let mut waits = Vec::new();
        let (failed, checkpoint) = match root.run(request.with_state(state.clone())).await {
            Ok(response) => {
                waits.extend(response.open_calls().map(|call| call.name.to_string()));
                (false, response.checkpoint())
            }
            Err(error) => (true, error.checkpoint().unwrap().clone()),
        };
        let events = events(&checkpoint.messages, from, root.name());
        self.turns.push(Said {
            events,
            failed,
            waits,
        });
        checkpoint
    }
}

/// Returns an answer in the form of an approval, if it is one.
fn decision(answer: &Value) -> Value {
    match answer["confirmed"].as_bool() {
        Some(true) => Decision::Approve.into(),
        Some(false) => Decision::Reject { reason: None }.into(),
        None => answer.clone(),
    }
}

/// Returns what was said from this message on.
fn events(messages: &Messages, from: usize, root: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut author = root;
    for (index, message) in messages.iter().enumerate() {
        if let Some(by) = message.author() {
            author = by.rsplit('/').next().unwrap();
        }
        if index < from || message.role() == Role::User {
            continue;
        }
        for part in message.parts() {
            let mut event = vec![json!(author)];
            event.extend(piece("said", part));
            events.push(event.into());
        }
    }
    events
}

impl Asked {
    pub(super) fn of(request: &ModelRequest) -> Self {
        let is_transfer = |name: &str| name == "transfer_to_agent";
        let declarations = request.tools();
        let names = declarations.iter().map(|tool| tool.name().to_owned());
        let mut tools: Vec<_> = names.filter(|name| !is_transfer(name)).collect();
        tools.sort();
        let transfer = declarations.iter().find(|tool| is_transfer(tool.name()));
        let targets =
            transfer.map(|tool| tool.parameters()["properties"]["agent_name"]["enum"].clone());
        Self {
            contents: request.messages().iter().flat_map(contents).collect(),
            tools,
            transfer: targets.unwrap_or(json!([])),
            instruction: request.instructions().unwrap_or_default().to_owned(),
        }
    }
}

fn contents(message: &Message) -> Vec<Value> {
    let role = match message.role() {
        Role::User => "user",
        _ => "model",
    };
    let quotes: Vec<_> = message.parts().iter().filter_map(quote).collect();
    if !quotes.is_empty() {
        return quotes;
    }
    message
        .parts()
        .iter()
        .map(|part| piece(role, part).into())
        .collect()
}

/// Returns one part of a message in the common form.
fn piece(role: &str, part: &Part) -> Vec<Value> {
    match part {
        Part::Text(text) => vec![json!(role), json!(text.text)],
        Part::ToolCall(call) => {
            vec![
                json!("call"),
                json!(call.name),
                call.arguments.value().clone(),
            ]
        }
        Part::ToolResult(result) => {
            vec![json!("result"), json!(result.name), shown(result)]
        }
        other => panic!("{other:?}"),
    }
}

fn shown(result: &ToolResult) -> Value {
    if result.is_error {
        return json!("error");
    }
    value(&result.name, &result.text())
}

/// Returns the value of a tool of which a model reads this text.
fn value(tool: &str, text: &str) -> Value {
    match tool {
        "transfer_to_agent" => json!("ok"),
        _ => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
    }
}

/// Reads a quotation of another agent.
fn quote(part: &Part) -> Option<Value> {
    let text = part.as_text()?.strip_prefix("<quote ")?;
    let (of, text) = text.split_once(">\n")?;
    let text = text.strip_suffix("\n</quote>")?;
    let mut of = of.split('"');
    of.next()?;
    let author = of.next()?;
    let quote = match (of.next()?, of.next()) {
        (" call=", Some(tool)) => {
            let arguments: Value = serde_json::from_str(text).unwrap();
            json!(["quote", author, "called", tool, arguments])
        }
        (" error=", Some(tool)) => json!(["quote", author, "read", tool, "error"]),
        (" result=", Some(tool)) => json!(["quote", author, "read", tool, value(tool, text)]),
        _ => json!(["quote", author, "said", text]),
    };
    Some(quote)
}
