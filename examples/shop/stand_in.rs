//! A model without a network. It answers to a few words, slowly enough to watch.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;
use tower::service_fn;
use tower_agent::message::ToolCall;
use tower_agent::model::ModelService;
use tower_agent::stream::Delta;
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Result, Role};

/// The time between two words.
const PAUSE: Duration = Duration::from_millis(40);

pub(crate) fn model() -> impl ModelService {
    service_fn(answer)
}

async fn answer(request: ModelRequest) -> Result<ModelResponse> {
    let messages = request.messages();
    let last = messages.last().filter(|last| last.role() == Role::Tool);
    let result = last.and_then(|last| last.tool_results().next());
    if let Some(result) = result {
        return say(&request, &format!("It is done: {}.", result.text())).await;
    }
    let mut users = messages
        .iter()
        .rev()
        .filter(|message| message.role() == Role::User);
    let wish = users.next().map(Message::text).unwrap_or_default();
    if wish.contains("refund") {
        let arguments = json!({ "order": "A7", "cents": 4990 });
        let call = ToolCall::new("call", "refund", arguments);
        return Ok(ModelResponse::from_tool_calls([call]));
    }
    if wish.contains("fail") {
        let text = "upstream 10.0.0.7 failed: stack trace: at secret::module";
        return Err(Error::new(ErrorKind::Provider, text));
    }
    if wish.contains("story") {
        return say(&request, &"once upon a time ".repeat(100)).await;
    }
    say(&request, "Hello! What can I do for you?").await
}

async fn say(request: &ModelRequest, text: &str) -> Result<ModelResponse> {
    let Some(sender) = request.delta_sender() else {
        return Ok(ModelResponse::from_text(text));
    };
    let mut attempt = sender.open();
    for word in text.split_inclusive(' ') {
        sleep(PAUSE).await;
        attempt.send(Delta::Text(word.into())).await?;
    }
    Ok(ModelResponse::from(attempt.finish().await?))
}
