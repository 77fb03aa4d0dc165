use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ProviderData, ToolCall, ToolResult};

/// One piece of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Words.
    Text(Text),
    /// What the model thought before it spoke.
    Reasoning(Reasoning),
    /// A picture.
    Image(Image),
    /// The model asks for a tool.
    ToolCall(ToolCall),
    /// A tool has answered.
    ToolResult(ToolResult),
    /// A piece only one provider knows, which it must get back unchanged.
    Provider(ProviderData),
}

/// Words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Text {
    /// The words.
    pub text: String,
    /// What a provider added and must get back.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// What the model thought before it spoke.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reasoning {
    /// The thoughts, or their summary; empty where the provider keeps them to itself.
    pub text: String,
    /// What a provider added and must get back: a signature, an encrypted form.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// A picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Image {
    /// Where the picture is.
    pub source: ImageSource,
    /// What a provider added and must get back.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// Where a picture is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImageSource {
    /// At an address that the provider can read.
    Url(String),
    /// Here, in base64.
    Base64 {
        /// Such as `image/png`.
        media_type: String,
        /// The bytes, in base64.
        data: String,
    },
}

impl Part {
    /// Words.
    #[must_use]
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::Text(Text { text: text.into(), ..Text::default() })
    }

    /// What the model thought before it spoke.
    #[must_use]
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning(Reasoning { text: text.into(), ..Reasoning::default() })
    }

    /// A picture at an address.
    #[must_use]
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::image(ImageSource::Url(url.into()))
    }

    /// A picture in base64; `media_type` is such as `image/png`.
    #[must_use]
    pub fn image_base64(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::image(ImageSource::Base64 { media_type: media_type.into(), data: data.into() })
    }

    fn image(source: ImageSource) -> Self {
        Self::Image(Image { source, provider: ProviderData::default() })
    }

    /// The words, if this is a text part.
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

/// A JSON string becomes its words, anything else its JSON.
impl From<&Value> for Part {
    fn from(value: &Value) -> Self {
        Self::from_text(match value {
            Value::String(text) => text.clone(),
            // What `to_string` writes, without the machinery of `Display`; it cannot fail.
            other => serde_json::to_string(other).unwrap_or_default(),
        })
    }
}
