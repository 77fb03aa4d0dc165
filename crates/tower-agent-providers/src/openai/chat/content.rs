use std::borrow::Cow;

use serde::de::SeqAccess;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::json::lenient::{Wanted, wanted};

/// The content of the model's message, or its next piece.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    /// A list of texts, and of the model's thoughts among them.
    Parts(Vec<ContentPart>),
}

#[derive(Debug)]
pub(super) enum ContentPart {
    Text(String),
    Thought(String),
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Text(Cow::Borrowed(""))
    }
}

/// Reads a string, a list of parts with a `text` or a `thinking`, or nothing.
impl<'de> Deserialize<'de> for Content<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let content = wanted(deserializer, ReadContent)?;
        Ok(content.unwrap_or_default())
    }
}

struct ReadContent;

impl<'de> Wanted<'de> for ReadContent {
    type Value = Content<'de>;

    fn borrowed_text(self, text: &'de str) -> Option<Content<'de>> {
        Some(Content::Text(Cow::Borrowed(text)))
    }

    fn text(self, text: &str) -> Option<Content<'de>> {
        Some(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Option<Content<'de>>, A::Error> {
        let mut parts = Vec::new();
        while let Some(value) = seq.next_element::<Value>()? {
            parts.extend(part(&value));
        }
        Ok(Some(Content::Parts(parts)))
    }
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
