//! Transfers the conversation to a sub-agent.

use std::sync::Arc;

use serde_json::{Value, json};

use super::agent::Agent;
use super::team_response::TeamResponse;
use crate::call::Request;
use crate::conversation::{NextStep, OrderedMessages, next_step};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, Messages, Role};
use crate::run::{AgentRequest, AgentResponse};
use crate::tool::{Effect, Tool, ToolDeclaration, ToolRequest, ToolResponse};

pub(super) const NAME: &str = "transfer_to_agent";

/// Returns the tool for transfers, if there are sub-agents.
pub(super) fn tool(agents: &[Agent]) -> Option<Tool> {
    if agents.is_empty() {
        return None;
    }
    let names: Arc<[Arc<str>]> = agents.iter().map(|agent| agent.name().into()).collect();
    let service = tower::service_fn(move |request: ToolRequest| {
        std::future::ready(choose(&names, request.arguments()))
    });
    Some(Tool::service(declaration(agents), service))
}

fn declaration(agents: &[Agent]) -> ToolDeclaration {
    let mut description =
        String::from("Transfers the conversation to another agent, which responds instead of you.");
    for agent in agents {
        description.push_str("\n- `");
        description.push_str(agent.name());
        description.push('`');
        if !agent.description().is_empty() {
            description.push_str(": ");
            description.push_str(agent.description());
        }
    }
    let names: Vec<_> = agents.iter().map(Agent::name).collect();
    let agent =
        json!({ "type": "string", "enum": names, "description": "The agent to transfer to." });
    ToolDeclaration::new(NAME, description)
        .with_parameters(json!({
            "type": "object",
            "properties": { "agent": agent },
            "required": ["agent"],
        }))
        .with_effect(Effect::Idempotent)
        .of_transfer()
}

fn choose(names: &[Arc<str>], arguments: &Value) -> Result<ToolResponse> {
    let chosen = arguments.get("agent").and_then(Value::as_str);
    match names.iter().find(|name| Some(&***name) == chosen) {
        Some(name) => Ok(ToolResponse::new(taken_by(name))),
        None => {
            let known = names.join(", ");
            let message = format!("`agent` must be one of these: {known}");
            Err(Error::new(ErrorKind::InvalidArguments, message))
        }
    }
}

/// Returns the tool's result. It is in the transcript, where a resumed run finds it.
fn taken_by(agent: &str) -> String {
    format!("Transferred the conversation to `{agent}`.")
}

/// Returns the one of these sub-agents that the last turn of these messages transferred to.
pub(super) fn successor<'a>(agents: &'a [Agent], messages: &Messages) -> Option<&'a Agent> {
    if matches!(next_step(messages), NextStep::Tools(_)) {
        return None;
    }
    let answers = messages
        .iter()
        .rev()
        .take_while(|message| message.role() == Role::Tool);
    // The first one, if the model named several.
    let handed = answers
        .flat_map(Message::tool_results)
        .filter_map(|answer| {
            let text = (&*answer.name == NAME && !answer.is_error).then(|| answer.text())?;
            agents.iter().find(|agent| text == taken_by(agent.name()))
        });
    handed.last()
}

/// Returns the agent's response after a sub-agent has continued its conversation.
pub(super) async fn take_over(
    agent: &Agent,
    request: &AgentRequest,
    messages: OrderedMessages,
    iterations: u32,
) -> Result<AgentResponse> {
    let response = agent
        .run(request.hand_over(messages.in_call_order().clone()))
        .await?;
    let mut tally = TeamResponse::since(request.messages().len(), messages, iterations);
    tally.add(&response);
    Ok(tally.response(request.context(), response.end_reason().clone()))
}
