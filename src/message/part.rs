use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ProviderData, ToolCall};

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Text.
    Text(Text),
    /// The model's reasoning.
    Reasoning(Reasoning),
    /// An image.
    Image(Image),
    /// A tool call of the model.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A part specific to one provider, sent back unchanged.
    Provider(ProviderData),
}

/// A text part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Text {
    /// The text.
    pub text: String,
    /// Provider data that must be sent back.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// The model's reasoning.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reasoning {
    /// The reasoning or its summary; empty if the provider does not reveal it.
    pub text: String,
    /// Provider data that must be sent back: a signature, an encrypted form.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// An image part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// The source of the image.
    pub source: ImageSource,
    /// Provider data that must be sent back.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// The source of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImageSource {
    /// A URL that the provider can read.
    Url(String),
    /// Inline data, in base64.
    Base64 {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The data, in base64.
        data: String,
    },
}

/// The result of a tool call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: Arc<str>,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The parts that the model reads.
    pub parts: Vec<Part>,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolResult {
    /// Creates the result of `call`.
    #[must_use]
    pub fn new(call: &ToolCall, parts: impl IntoIterator<Item = Part>) -> Self {
        Self {
            call_id: call.id.clone(),
            name: call.name.clone(),
            parts: parts.into_iter().collect(),
            is_error: false,
        }
    }

    /// Marks the result as a failure.
    #[must_use]
    pub fn failed(mut self) -> Self {
        self.is_error = true;
        self
    }

    /// Returns the text of all text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }
}

impl Part {
    /// Creates a text part.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::Text(Text { text: text.into(), ..Text::default() })
    }

    /// Creates a reasoning part.
    #[must_use]
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning(Reasoning { text: text.into(), ..Reasoning::default() })
    }

    /// Creates an image part with a URL.
    #[must_use]
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::image(ImageSource::Url(url.into()))
    }

    /// Creates an image part with data in base64; `media_type` is, for example, `image/png`.
    #[must_use]
    pub fn image_base64(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::image(ImageSource::Base64 { media_type: media_type.into(), data: data.into() })
    }

    fn image(source: ImageSource) -> Self {
        Self::Image(Image { source, provider: ProviderData::default() })
    }

    /// Returns the text, if this is a text part.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(&text.text),
            _ => None,
        }
    }
}

impl From<ToolCall> for Part {
    fn from(call: ToolCall) -> Self {
        Self::ToolCall(call)
    }
}

impl From<ToolResult> for Part {
    fn from(result: ToolResult) -> Self {
        Self::ToolResult(result)
    }
}

/// Converts a JSON string to its text, and any other value to its JSON.
impl From<&Value> for Part {
    fn from(value: &Value) -> Self {
        Self::from_text(match value {
            Value::String(text) => text.clone(),
            // What `to_string` writes, without the machinery of `Display`; it cannot fail.
            other => serde_json::to_string(other).unwrap_or_default(),
        })
    }
}
