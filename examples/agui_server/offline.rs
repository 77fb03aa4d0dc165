//! A model without a network: it responds to the page's buttons, and leaves arithmetic to the
//! quickstart's stand-in.
//!
//! ```text
//! Offline: Service<ModelRequest, Response = ModelResponse>
//! ```
//!
//! Like a provider it is stateless, and streams if the request has a sink.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::{Service, ServiceExt};
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::stream::{Delta, DeltaSender};
use tower_agent::{Error, Message, ModelRequest, ModelResponse, Part, Result, Role, Usage};

use crate::script::Script;

const STORY: &str = include_str!("story.txt");

/// The delay between two deltas, which makes the streaming visible.
const PER_DELTA: Duration = Duration::from_millis(30);

/// The model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offline;

impl Service<ModelRequest> for Offline {
    type Response = ModelResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<ModelResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        Box::pin(async move {
            let response = answer(&request).await?;
            let Some(sink) = request.delta_sender() else {
                return Ok(response);
            };
            Ok(stream(response.message(), sink)
                .await?
                .with_usage(response.usage()))
        })
    }
}

/// Returns the whole next message.
async fn answer(request: &ModelRequest) -> Result<ModelResponse> {
    let messages = request.messages();
    let asked = messages
        .iter()
        .rposition(|message| message.role() == Role::User);
    let question = asked
        .map(|asked| messages[asked].text())
        .unwrap_or_default();
    let wish = question.to_lowercase();
    let since = messages.range(asked.map_or(0, |asked| asked + 1));
    let result = since.flat_map(Message::tool_results).last();

    let part = if let Some(path) = file_to_delete(&question) {
        match result {
            None => call(request, "delete_file", json!({ "path": path })),
            Some(result) if result.is_error => text(format!("I deleted nothing: {}.", why(result))),
            Some(result) => text(format!("Done: {}.", result.text())),
        }
    } else if wish.contains("pick a colo") {
        let is_offered = request
            .tools()
            .iter()
            .any(|tool| tool.name() == "pick_color");
        match result {
            Some(result) if result.is_error => text("No colour, then."),
            Some(result) => text(format!("{} it is. A fine choice.", result.text())),
            None if is_offered => call(
                request,
                "pick_color",
                json!({ "prompt": "Which colour do you like?" }),
            ),
            None => text("I would show you colours, but this front end has no tool for it."),
        }
    } else if wish.contains("story") {
        text(STORY.trim())
    } else {
        return calculate(request, result.is_none()).await;
    };
    let message = Message::new(Role::Assistant, [part]);
    let usage = Usage::new(messages.iter().map(words).sum(), words(&message));
    Ok(ModelResponse::new(message).with_usage(usage))
}

/// Returns the response of the stand-in, after some reasoning if it is the first.
async fn calculate(request: &ModelRequest, is_first: bool) -> Result<ModelResponse> {
    let mut response = Script
        .oneshot(request.clone().with_delta_sender(None))
        .await?;
    let tools: Vec<_> = response
        .message()
        .tool_calls()
        .map(|call| call.name.to_string())
        .collect();
    if is_first && !tools.is_empty() {
        let thought = format!(
            "I never compute myself, so I begin with {}.",
            tools.join(" and ")
        );
        response
            .message_mut()
            .parts_mut()
            .insert(0, Part::reasoning(thought));
    }
    Ok(response)
}

/// Returns the path in `Delete <path>`.
fn file_to_delete(question: &str) -> Option<&str> {
    let (verb, path) = question.trim().split_once(' ')?;
    let path = path.trim().trim_end_matches(['.', '!', '?']);
    let is_path = path.contains('.') && !path.contains(' ');
    (verb.eq_ignore_ascii_case("delete") && is_path).then_some(path)
}

fn text(text: impl Into<String>) -> Part {
    Part::from_text(text)
}

/// Creates a call whose id is unique by the length of the conversation.
fn call(request: &ModelRequest, tool: &str, arguments: Value) -> Part {
    let id = format!("call_{}", request.messages().len());
    ToolCall::new(id, tool, arguments).into()
}

/// Returns why a call failed, without the error kind at the start of its result.
fn why(result: &ToolResult) -> String {
    let text = result.text();
    text.strip_prefix("tool failed: ")
        .unwrap_or(&text)
        .to_owned()
}

/// Streams the message: reasoning and text word by word, arguments value by value.
async fn stream(message: &Message, sink: &DeltaSender) -> Result<ModelResponse> {
    let mut deltas = Vec::new();
    let mut index = 0;
    for part in message.parts() {
        match part {
            Part::Reasoning(thought) => {
                deltas.extend(pieces(&thought.text, &[' ']).map(Delta::Reasoning));
            }
            Part::Text(text) => deltas.extend(pieces(&text.text, &[' ']).map(Delta::Text)),
            Part::ToolCall(call) => {
                let (id, name) = (call.id.clone(), call.name.clone());
                deltas.push(Delta::ToolCall { index, id, name });
                let json = call.arguments.as_str();
                let pieces = pieces(json, &[',', ':']);
                deltas.extend(pieces.map(|json| Delta::Arguments { index, json }));
                index += 1;
            }
            _ => {}
        }
    }
    let mut attempt = sink.open();
    for delta in deltas {
        attempt.send(delta).await?;
        sleep(PER_DELTA).await;
    }
    Ok(attempt.finish().await?.into())
}

/// Splits a text into pieces, each up to one of the characters `ends`.
fn pieces(text: &str, ends: &[char]) -> impl Iterator<Item = String> {
    text.split_inclusive(ends).map(str::to_owned)
}

/// Counts words as tokens.
fn words(message: &Message) -> u64 {
    message.text().split_whitespace().count() as u64
}
