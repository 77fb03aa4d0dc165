use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The content of the model's message, or its next piece.
#[derive(Debug)]
pub(super) enum Content {
    Text(String),
    /// A list of texts, and of the model's thoughts among them.
    Parts(Vec<ContentPart>),
}

#[derive(Debug)]
pub(super) enum ContentPart {
    Text(String),
    Thought(String),
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// Reads a string, a list of parts with a `text` or a `thinking`, or nothing.
pub(super) fn content<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Content, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Content::Text(text),
        Value::Array(parts) => Content::Parts(parts.iter().filter_map(part).collect()),
        _ => Content::default(),
    })
}

fn part(part: &Value) -> Option<ContentPart> {
    match &part["thinking"] {
        Value::Null => text(part).map(|text| ContentPart::Text(text.to_owned())),
        Value::Array(thoughts) => Some(ContentPart::Thought(
            thoughts.iter().filter_map(text).collect(),
        )),
        thought => text(thought).map(|text| ContentPart::Thought(text.to_owned())),
    }
}

fn text(part: &Value) -> Option<&str> {
    part["text"].as_str().or(part.as_str())
}
