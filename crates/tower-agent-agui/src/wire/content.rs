use std::fmt;
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::skip::{absent, word};

/// The content of a user message or tool result: text, or parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, try_from = "AnyContent")]
#[non_exhaustive]
pub enum Content {
    /// Text.
    Text(String),
    /// Text, images, audio.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// Returns the text of all text parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts.iter().filter_map(ContentPart::as_text).collect(),
        }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Vec<ContentPart>> for Content {
    fn from(parts: Vec<ContentPart>) -> Self {
        Self::Parts(parts)
    }
}

/// The content of a message of any role. Implemented by hand, so that an error inside a part names
/// the part.
pub(super) enum AnyContent {
    Text(String),
    Parts(Vec<ContentPart>),
    Object(Map<String, Value>),
}

impl AnyContent {
    pub(super) fn text(self) -> Result<String, &'static str> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Parts(_) | Self::Object(_) => Err("the content of this role is a string"),
        }
    }

    pub(super) fn text_or_parts(self) -> Result<Content, &'static str> {
        match self {
            Self::Text(text) => Ok(Content::Text(text)),
            Self::Parts(parts) => Ok(Content::Parts(parts)),
            Self::Object(_) => Err("the content of this role is a string or a list of parts"),
        }
    }

    pub(super) fn object(self) -> Result<Map<String, Value>, &'static str> {
        match self {
            Self::Object(object) => Ok(object),
            Self::Text(_) | Self::Parts(_) => Err("the content of an activity is an object"),
        }
    }
}

impl TryFrom<AnyContent> for Content {
    type Error = &'static str;

    fn try_from(content: AnyContent) -> Result<Self, Self::Error> {
        content.text_or_parts()
    }
}

impl<'de> Deserialize<'de> for AnyContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = AnyContent;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a list of content parts, or an activity's object")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<AnyContent, E> {
                Ok(AnyContent::Text(text.to_owned()))
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<AnyContent, E> {
                Ok(AnyContent::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<AnyContent, A::Error> {
                Deserialize::deserialize(SeqAccessDeserializer::new(parts)).map(AnyContent::Parts)
            }

            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<AnyContent, A::Error> {
                Deserialize::deserialize(MapAccessDeserializer::new(object)).map(AnyContent::Object)
            }
        }

        // Not an untagged enum, which would buffer the value and lose the position of an error.
        deserializer.deserialize_any(Any)
    }
}

/// One part of a message's content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", try_from = "AnyPart")]
#[non_exhaustive]
pub enum ContentPart {
    /// Text.
    Text(TextPart),
    /// An image.
    Image(MediaPart),
    /// Audio.
    Audio(MediaPart),
    /// A video.
    Video(MediaPart),
    /// A document, such as a PDF.
    Document(MediaPart),
}

impl ContentPart {
    /// Creates a text part.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextPart {
            text: text.into(),
            ..TextPart::default()
        })
    }

    /// Creates an image part.
    #[must_use]
    pub fn image(source: PartSource) -> Self {
        Self::Image(MediaPart {
            source,
            id: None,
            metadata: None,
        })
    }

    /// Returns the text, if it is a text part.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(part) => Some(&part.text),
            _ => None,
        }
    }
}

/// Text among other parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TextPart {
    /// The text.
    pub text: String,
    /// The id of the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Arc<str>>,
    /// Further data from the client.
    #[serde(skip_serializing_if = "absent")]
    pub metadata: Option<Value>,
}

/// An image, audio, a video or a document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MediaPart {
    /// The source of the data.
    pub source: PartSource,
    /// The id of the part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Arc<str>>,
    /// Further data from the client.
    #[serde(skip_serializing_if = "absent")]
    pub metadata: Option<Value>,
}

/// The source of a medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "lowercase",
    rename_all_fields = "camelCase",
    try_from = "AnySource"
)]
#[non_exhaustive]
pub enum PartSource {
    /// Inline, in base64.
    Data {
        /// The data, in base64.
        value: String,
        /// The media type, such as `image/png`.
        mime_type: String,
    },
    /// At a URL.
    Url {
        /// The URL.
        value: String,
        /// The media type, such as `image/png`.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// In a provider's file store.
    File {
        /// The provider's id of the file.
        value: String,
        /// The provider.
        #[serde(skip_serializing_if = "Option::is_none")]
        provider: Option<String>,
        /// The media type, such as `image/png`.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
}

/// A part of any kind, read in one pass without a buffer, so that errors have a position.
#[derive(Deserialize)]
#[serde(expecting = "a content part")]
struct AnyPart {
    #[serde(rename = "type", deserialize_with = "word")]
    kind: PartType,
    text: Option<String>,
    source: Option<PartSource>,
    id: Option<Arc<str>>,
    metadata: Option<Value>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PartType {
    Text,
    Image,
    Audio,
    Video,
    Document,
}

impl TryFrom<AnyPart> for ContentPart {
    type Error = &'static str;

    fn try_from(part: AnyPart) -> Result<Self, Self::Error> {
        let AnyPart {
            kind,
            text,
            source,
            id,
            metadata,
        } = part;
        let media = match kind {
            // Returned here: it is the only part without a source.
            PartType::Text => {
                let text = text.ok_or("missing field `text` of a text part")?;
                return Ok(Self::Text(TextPart { text, id, metadata }));
            }
            PartType::Image => Self::Image,
            PartType::Audio => Self::Audio,
            PartType::Video => Self::Video,
            PartType::Document => Self::Document,
        };
        let source = source.ok_or("missing field `source` of a media part")?;
        Ok(media(MediaPart {
            source,
            id,
            metadata,
        }))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "a source")]
struct AnySource {
    #[serde(rename = "type", deserialize_with = "word")]
    kind: SourceType,
    value: String,
    mime_type: Option<String>,
    provider: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SourceType {
    Data,
    Url,
    File,
}

impl TryFrom<AnySource> for PartSource {
    type Error = &'static str;

    fn try_from(source: AnySource) -> Result<Self, Self::Error> {
        let AnySource {
            kind,
            value,
            mime_type,
            provider,
        } = source;
        Ok(match kind {
            // Unlike a URL, bare data says nothing about its type.
            SourceType::Data => {
                let mime_type = mime_type.ok_or("missing field `mimeType` of a data source")?;
                Self::Data { value, mime_type }
            }
            SourceType::Url => Self::Url { value, mime_type },
            SourceType::File => Self::File {
                value,
                provider,
                mime_type,
            },
        })
    }
}
