//! A model without a network, which knows two requests.
//!
//! ```text
//! Script: Service<ModelRequest, Response = ModelResponse>
//! ```
//!
//! It stands in for a provider: it is stateless, calls tools, answers from their results, and
//! streams if the request has a sink. It never computes itself.

use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use tower::Service;
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::stream::{Delta, DeltaSender};
use tower_agent::{Error, Message, ModelRequest, ModelResponse, Part, Result, Role, Usage};

const HELP: &str = "Without a provider I know two requests: \"what is 12.5% of 840, plus 17?\", \
    with any three numbers, and \"delete everything\".";

/// The delay between two words of a streamed response, which makes the streaming visible.
const PER_WORD: Duration = Duration::from_millis(15);

/// The model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script;

impl Service<ModelRequest> for Script {
    type Response = ModelResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<ModelResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        Box::pin(async move {
            let message = Message::new(Role::Assistant, [next_part(&request)]);
            // A token is a word.
            let usage = Usage::new(request.messages().iter().map(words).sum(), words(&message));
            let response = match request.delta_sender() {
                Some(sink) => stream(&message, sink).await?,
                None => ModelResponse::new(message),
            };
            Ok(response.with_usage(usage))
        })
    }
}

/// Returns the next tool call, or the answer once every call has its result.
fn next_part(request: &ModelRequest) -> Part {
    let messages = request.messages();
    // Everything before the last question has been answered.
    let Some(start) = messages
        .iter()
        .rposition(|message| message.role() == Role::User)
    else {
        return Part::from_text(HELP);
    };
    let question = messages[start].text().to_lowercase();
    let results: Vec<&ToolResult> = messages
        .range(start + 1)
        .flat_map(Message::tool_results)
        .collect();
    if let Some(failed) = results.iter().find(|result| result.is_error) {
        return Part::from_text(format!("That did not work: {}.", failed.text()));
    }
    let call = |tool: &str, arguments: Value| {
        // Unique by the length of the conversation.
        ToolCall::new(format!("call_{}", messages.len()), tool, arguments).into()
    };
    match (&numbers(&question)[..], &results[..]) {
        (&[percent, whole, _], []) if question.contains('%') => {
            call("percent_of", json!({ "percent": percent, "whole": whole }))
        }
        (&[_, _, more], [share]) => match share.text().parse::<f64>() {
            Ok(share) => call("add", json!({ "a": share, "b": more })),
            Err(_) => Part::from_text(format!("`{}` is not a number.", share.text())),
        },
        (&[percent, whole, more], [_, sum]) => Part::from_text(format!(
            "{percent}% of {whole} plus {more} is {}.",
            sum.text().trim_end_matches(".0")
        )),
        ([], []) if question.contains("delete") => call("delete_all_records", json!({})),
        _ => Part::from_text(HELP),
    }
}

/// Returns the numbers in a text.
fn numbers(text: &str) -> Vec<f64> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|word| word.parse().ok())
        .collect()
}

/// Streams the message: text word by word, a tool call at once.
async fn stream(message: &Message, sink: &DeltaSender) -> Result<ModelResponse> {
    let mut attempt = sink.open();
    for call in message.tool_calls() {
        let start = Delta::ToolCall {
            index: 0,
            id: call.id.clone(),
            name: call.name.clone(),
        };
        attempt.send(start).await?;
        let json = call.arguments.as_str().to_owned();
        attempt.send(Delta::Arguments { index: 0, json }).await?;
    }
    for word in message.text().split_inclusive(' ') {
        attempt.send(Delta::Text(word.to_owned())).await?;
        tokio::time::sleep(PER_WORD).await;
    }
    Ok(attempt.finish().await?.into())
}

/// Counts words as tokens.
fn words(message: &Message) -> u64 {
    message.text().split_whitespace().count() as u64
}
