//! Callbacks as in Google's ADK for Python.
//!
//! Every agent here has [`Semantics::adk_python`].

mod agent;
mod chains;
mod model;
mod model_uses;
mod parallel_tools;
mod plugins;
mod reflect;
mod sub_agents;
mod teams;
mod tool;
mod tool_uses;

use serde_json::Value;
use tower_agent::compat::Semantics;
use tower_agent::model::ModelService;
use tower_agent::{Agent, AgentBuilder, AgentResponse, Message, ModelResponse, Tool};
use tower_agent_test::ScriptedModel;

use test_support::log::Log;

/// An agent with the semantics of the framework.
fn adk(model: &ScriptedModel) -> AgentBuilder {
    adk_of(model.clone())
}

fn adk_of(model: impl ModelService) -> AgentBuilder {
    Agent::builder(model).semantics(Semantics::adk_python())
}

/// A tool named `work` that writes its arguments down and answers `{"from": "tool"}`.
fn work(log: &Log) -> Tool {
    let log = log.clone();
    Tool::function("work", "Works.", move |arguments: Value| {
        log.note(format!("work {arguments}"));
        serde_json::json!({ "from": "tool" })
    })
}

fn model_says(text: &str) -> ModelResponse {
    ModelResponse::from_text(text)
}

fn agent_says(text: &str) -> AgentResponse {
    AgentResponse::new([Message::assistant(text)])
}

/// The results of its tool calls that the model has read, in the transcript's order.
fn told(response: &AgentResponse) -> Vec<String> {
    response
        .messages()
        .iter()
        .flat_map(Message::tool_results)
        .map(|told| told.text())
        .collect()
}

/// The texts of what the agent said.
fn said(response: &AgentResponse) -> Vec<String> {
    response
        .new_messages()
        .map(Message::text)
        .filter(|text| !text.is_empty())
        .collect()
}
