//! Tokens as a model counts them.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::hash::RandomState;
use std::sync::Mutex;

use bpe_openai::Tokenizer;
use tower_agent::message::{Message, Part};

use super::estimated::{MEDIA_TOKENS, MESSAGE_TOKENS, media};
use crate::lock::lock;

/// The number of texts whose tokens are remembered: more than a window has messages.
const MAX_KNOWN: usize = 10_000;

/// Shorter texts are counted as fast as they are found.
const MIN_KNOWN: usize = 100;

/// Counts the tokens of messages with a tokenizer. Each text is counted once, as long as it is
/// remembered.
pub(super) struct TokenCounter {
    tokenizer: &'static Tokenizer,
    hasher: RandomState,
    known: Mutex<HashMap<u64, u64>>,
}

impl TokenCounter {
    /// Returns the counter for a model; `None` if its tokenizer is not known.
    pub(super) fn of_model(model: &str) -> Option<Self> {
        // A gateway's name for a model begins with that of its provider.
        let model = model.rsplit('/').next().unwrap_or(model);
        let begins_with = |names: &[&str]| names.iter().any(|name| model.starts_with(name));
        let newer = [
            "chatgpt-4o",
            "gpt-4.1",
            "gpt-4.5",
            "gpt-4o",
            "gpt-5",
            "gpt-oss",
            "o1",
            "o3",
            "o4",
        ];
        let tokenizer = if begins_with(&newer) {
            bpe_openai::o200k_base()
        } else if begins_with(&["gpt-3.5", "gpt-4"]) {
            bpe_openai::cl100k_base()
        } else {
            return None;
        };
        Some(Self {
            tokenizer,
            hasher: RandomState::new(),
            known: Mutex::default(),
        })
    }

    /// Returns the tokens of a message.
    pub(super) fn count(&self, message: &Message) -> u64 {
        let parts = message.parts();
        MESSAGE_TOKENS + self.of_parts(parts) + MEDIA_TOKENS * media(parts)
    }

    fn of_parts(&self, parts: &[Part]) -> u64 {
        let of_part = |part: &Part| match part {
            Part::Text(text) => self.of_text(&text.text),
            Part::Reasoning(reasoning) => self.of_text(&reasoning.text),
            Part::ToolCall(call) => {
                self.of_text(&call.name) + self.of_text(call.arguments.as_str())
            }
            Part::ToolResult(result) => self.of_parts(&result.parts),
            // Media are counted apart, and data of a provider is not text.
            _ => 0,
        };
        parts.iter().map(of_part).sum()
    }

    fn of_text(&self, text: &str) -> u64 {
        if text.len() < MIN_KNOWN {
            return self.tokenizer.count(text) as u64;
        }
        let hash = self.hasher.hash_one(text);
        if let Some(tokens) = lock(&self.known).get(&hash) {
            return *tokens;
        }
        let tokens = self.tokenizer.count(text) as u64;
        let mut known = lock(&self.known);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(hash, tokens);
        tokens
    }
}
