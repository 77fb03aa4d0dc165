//! The ready-made middleware: theirs by name, ours in its place.

use std::time::Duration;

use serde::Deserialize;
use tower_agent::callback::on_tool_error;
use tower_agent::model::BoxModel;
use tower_agent::{AgentBuilder, ModelResponse, Recovery, ToolResponse};
use tower_agent_middleware::approval::Approval;
use tower_agent_middleware::budget::{Budget, Limits, OnExceeding};
use tower_agent_middleware::emulate::Emulate;
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::guardrail::{Guardrail, Verdict};
use tower_agent_middleware::redact::{Detector, Redact, hash, mask};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::todo::todo_list;

use super::program::{Turn, World};

#[derive(Clone, Deserialize)]
#[serde(tag = "ready", rename_all = "snake_case")]
pub(super) enum Ready {
    ModelCallLimit {
        limit: u64,
        exit: String,
    },
    ToolCallLimit {
        tool: Option<String>,
        limit: u64,
        exit: String,
    },
    ModelRetry {
        retries: u32,
    },
    ToolRetry {
        retries: u32,
    },
    ToolError,
    Fallback {
        says: Vec<Turn>,
    },
    Pii {
        strategy: String,
        places: Vec<String>,
    },
    Todo,
    Approval {
        tools: Vec<String>,
    },
    Emulate {
        tools: Vec<String>,
        says: Vec<Turn>,
    },
}

/// Returns the model with what is part of it here.
pub(super) fn around_model(ready: &Ready, model: BoxModel, world: &World) -> BoxModel {
    match ready {
        Ready::Fallback { says } => {
            let second = world.model(says);
            BoxModel::new(Fallback::new(model).or(second).fall_back_if(|_| true))
        }
        _ => model,
    }
}

fn retry(retries: u32) -> CallRetryLayer {
    CallRetryLayer::new()
        .max_attempts(retries + 1)
        .backoff(Duration::from_millis(1), Duration::from_millis(1))
}

pub(super) fn add(agent: AgentBuilder, ready: &Ready, world: &World) -> AgentBuilder {
    match ready {
        Ready::ModelCallLimit { limit, exit } => {
            let limits = Limits::new().model_calls(*limit).on_exceeding(at(exit));
            agent.callbacks(Budget::new(limits))
        }
        Ready::ToolCallLimit { tool, limit, exit } => {
            let limits = Limits::new().tool_calls(*limit).on_exceeding(at(exit));
            let budget = Budget::new(limits);
            agent.callbacks(match tool {
                Some(tool) => budget.of_tools([tool.as_str()]),
                None => budget,
            })
        }
        Ready::ModelRetry { retries } => agent.model_layer(retry(*retries)),
        Ready::ToolRetry { retries } => agent.tool_layer(retry(*retries)),
        Ready::ToolError => agent.on_tool(on_tool_error(|_, error| {
            Recovery::Fallback(ToolResponse::error(format!("told {}", error.message())))
        })),
        Ready::Fallback { .. } => agent,
        Ready::Pii { strategy, places } => pii(agent, strategy, places),
        Ready::Todo => agent.tool(todo_list()),
        Ready::Approval { tools } => agent.on_tool(
            Approval::of_tools(tools.clone())
                .allow_edits()
                .allow_answers(),
        ),
        Ready::Emulate { tools, says } => {
            let only = tools.iter().map(String::as_str);
            agent.on_tool(Emulate::new(world.model(says)).only(only))
        }
    }
}

fn at(exit: &str) -> OnExceeding {
    match exit {
        "error" => OnExceeding::Fail,
        "end" => OnExceeding::Finish,
        _ => OnExceeding::Refuse,
    }
}

fn pii(agent: AgentBuilder, strategy: &str, places: &[String]) -> AgentBuilder {
    let redact = Redact::new([Detector::email()]).unwrap().keep_arguments();
    let redact = match strategy {
        "redact" => redact.replace_with(|kind, _| format!("[REDACTED_{}]", kind.to_uppercase())),
        "mask" => redact.replace_with(mask),
        "hash" => redact.replace_with(hash("key")),
        _ => {
            let check = move |_, response: ModelResponse| {
                let text = response.text();
                let is_found = redact.text(&text) != text;
                async move {
                    if is_found {
                        Verdict::trip("an address")
                    } else {
                        Verdict::Pass
                    }
                }
            };
            return agent.model_layer(Guardrail::after(check));
        }
    };
    match places {
        [place] if place == "input" => agent.callbacks(redact.redact_input()),
        [place] if place == "results" => agent.tool_layer(redact.around_tool()),
        _ => agent.model_layer(redact.around_model()),
    }
}
