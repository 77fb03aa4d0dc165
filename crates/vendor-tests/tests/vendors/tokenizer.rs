//! Counting with a model's own tokenizer.

use std::time::Instant;

use serde_json::json;
use tower::{Layer, ServiceExt};
use tower_agent::message::ToolCall;
use tower_agent::{Callbacks, Message, ModelRequest, Part, Role};
use tower_agent_middleware::context_window::ContextWindow;
use tower_agent_test::{ScriptedModel, Turn};

/// Returns what a model is sent of these messages.
async fn sent(window: &ContextWindow, messages: &[Message]) -> Vec<Message> {
    let model = ScriptedModel::new([Turn::from_text("Ok.")]);
    let window = Callbacks::new().with(window.clone());
    let request = ModelRequest::new(messages.to_vec());
    window.layer(model.clone()).oneshot(request).await.unwrap();
    model.requests()[0].messages().iter().cloned().collect()
}

/// Returns how many tokens messages have for a window: the largest that they do not fit in.
async fn tokens(window: impl Fn(u64) -> ContextWindow, messages: &[Message]) -> u64 {
    let (mut least, mut most) = (0, 1 << 20);
    while least < most {
        let middle = (least + most) / 2;
        if sent(&window(middle), messages).await == messages {
            most = middle;
        } else {
            least = middle + 1;
        }
    }
    least
}

#[tokio::test]
async fn a_model_with_a_known_tokenizer_is_counted_exactly() {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(50);
    // The last message of the user stays, and the first may be left out.
    let messages = [
        Message::user(text.clone()).with_id("a"),
        Message::assistant("Ok.").with_id("b"),
        Message::user("?").with_id("c"),
    ];
    let of = |model: &'static str| {
        let messages = messages.clone();
        async move {
            tokens(
                |max| ContextWindow::new(max).cut_to(max).tokenizer_of(model),
                &messages,
            )
            .await
        }
    };
    // Ten tokens a sentence, but for the space at the end; "Ok." has two, "?" one, and each message
    // four.
    assert_eq!(of("gpt-5-mini").await, 10 * 50 + 1 + 2 + 1 + 3 * 4);
    assert_eq!(of("openai/gpt-4o").await, of("gpt-5-mini").await);
    assert_eq!(of("gpt-4").await, of("gpt-5-mini").await);
    // A fourth of the bytes, where none fits.
    let estimate = (text.len() as u64).div_ceil(4) + 1 + 1 + 3 * 4;
    assert_eq!(of("claude-sonnet-4-5").await, estimate);
}

#[tokio::test]
async fn a_text_that_is_hard_to_tokenize_takes_no_time() {
    let hard = [
        "a".repeat(300_000),
        " ".repeat(300_000),
        "\n \t".repeat(100_000),
    ];
    let call = ToolCall::new("1", "find", json!({ "text": &hard[0] }));
    let messages = [
        Message::user(hard.concat()).with_id("a"),
        Message::new(Role::Assistant, [Part::ToolCall(call)]).with_id("b"),
        Message::user("?").with_id("c"),
    ];
    let window = ContextWindow::new(1000).tokenizer_of("gpt-5");
    let start = Instant::now();
    let shown = sent(&window, &messages).await;
    assert!(shown.len() <= 2);
    assert!(start.elapsed().as_secs() < 20);
}
