//! A model without a network: a few rules that do arithmetic with tools.
//!
//! ```text
//! Rules: Service<ModelRequest, Response = ModelResponse>
//! ```
//!
//! It is small, but behaves like a provider. It is stateless: each call reads the last question in
//! the transcript ([`grammar`] says what it understands), matches the tool results after it to the
//! steps of its plan, and calls the tools for all steps whose operands are known, in parallel. When
//! no step is left, it responds with the results. It never computes itself.
//!
//! It streams if the request has a sink. A token is a word.

mod expr;
mod grammar;
mod plan;
mod token;

use std::collections::HashMap;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use tower::Service;
use tower_agent::stream::{Delta, DeltaSender};
use tower_agent::{Error, Message, ModelRequest, ModelResponse, Part, Result, Role, Usage};

use self::plan::Plan;

/// The delay between two words of a streamed response, which makes the streaming visible.
const PER_WORD: Duration = Duration::from_millis(15);

/// The model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules;

impl Service<ModelRequest> for Rules {
    type Response = ModelResponse;
    type Error = Error;
    type Future = BoxFuture<'static, Result<ModelResponse>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        Box::pin(answer(request))
    }
}

async fn answer(request: ModelRequest) -> Result<ModelResponse> {
    let message = next_message(&request);
    let usage = Usage::new(request.messages().iter().map(words).sum(), words(&message));
    let response = match request.delta_sender() {
        Some(sink) => stream(&message, sink).await?,
        None => ModelResponse::new(message),
    };
    Ok(response.with_usage(usage))
}

/// Returns the next message: more tool calls, or the final text.
fn next_message(request: &ModelRequest) -> Message {
    let messages = request.messages();
    let Some(asked) = messages
        .iter()
        .rposition(|message| message.role() == Role::User)
    else {
        return Message::assistant("Ask me something.");
    };
    let answers = messages.range(asked + 1).flat_map(Message::tool_results);
    let results: HashMap<_, _> = answers.map(|result| (&*result.call_id, result)).collect();

    let plan = Plan::new(&grammar::understand(&messages[asked].text()));
    // The position of the question makes the ids of two questions differ.
    let progress = plan.progress(|step| results.get(&*format!("call_{asked}_{step}")).copied());
    let calls: Vec<_> = progress
        .calls(|step| format!("call_{asked}_{step}"))
        .collect();
    if calls.is_empty() {
        return Message::assistant(progress.answer());
    }
    Message::new(Role::Assistant, calls.into_iter().map(Part::from))
}

/// Streams the message: its text word by word, its tool calls one by one.
async fn stream(message: &Message, sink: &DeltaSender) -> Result<ModelResponse> {
    let mut attempt = sink.open();
    for word in message.text().split_inclusive(' ') {
        attempt.send(Delta::Text(word.to_owned())).await?;
        tokio::time::sleep(PER_WORD).await;
    }
    for (index, call) in message.tool_calls().enumerate() {
        let (id, name) = (call.id.clone(), call.name.clone());
        attempt.send(Delta::ToolCall { index, id, name }).await?;
        attempt
            .send(Delta::Arguments {
                index,
                json: call.arguments.to_string(),
            })
            .await?;
    }
    Ok(attempt.finish().await?.into())
}

fn words(message: &Message) -> u64 {
    let parts = message.parts().iter().map(|part| match part {
        Part::Text(text) => text.text.clone(),
        Part::ToolCall(call) => format!("{} {}", call.name, call.arguments),
        Part::ToolResult(result) => result.text(),
        _ => String::new(),
    });
    parts
        .map(|text| text.split_whitespace().count() as u64)
        .sum()
}
