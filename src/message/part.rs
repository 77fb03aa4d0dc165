use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::media_source::MediaSource;
use super::provider_data::ProviderData;
use super::tool_call::ToolCall;

/// One part of a message.
//
// Media are boxed: most parts are none, and every message has room for one part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
#[must_use]
pub enum Part {
    /// Text.
    Text(Text),
    /// The model's reasoning.
    Reasoning(Reasoning),
    /// An image.
    Image(Box<Media>),
    /// Audio.
    Audio(Box<Media>),
    /// A document, such as a PDF.
    Document(Box<Media>),
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

/// An image, audio or a document.
///
/// ```
/// use tower_agent::message::{Media, MediaSource};
/// use tower_agent::{Message, Part};
///
/// let report = Media::new(MediaSource::base64("application/pdf", "JVBERi0="));
/// let report = Part::document(report.with_name("report.pdf"));
/// let message = Message::user("Summarise this.").with_part(report);
/// assert!(matches!(message.parts(), [Part::Text(_), Part::Document(_)]));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use]
pub struct Media {
    /// The source of the data.
    pub source: MediaSource,
    /// The file's name or the document's title. Some providers show that of a document to the
    /// model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// Provider data that must be sent back.
    #[serde(default, skip_serializing_if = "ProviderData::is_empty")]
    pub provider: ProviderData,
}

/// The result of a tool call, as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use]
pub struct ToolResult {
    /// The id of the call.
    pub call_id: Arc<str>,
    /// The name of the tool.
    pub name: Arc<str>,
    /// The parts that the model reads.
    pub parts: Vec<Part>,
    /// The tool refused or failed.
    #[serde(default)]
    pub is_error: bool,
    /// The parts are the text of an [`Error`](crate::Error), which may reveal internals: it is for
    /// the model, and not for the user. A refusal in the tool's own words is no such text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error_text: bool,
    /// One word long: few results have any, and each byte of a part is one of each message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered_by: Option<Arc<Vec<String>>>,
}

impl ToolResult {
    /// The result of a call that was dropped while it ran.
    pub(crate) const STOPPED: &str =
        "stopped: the run ended while this tool was running; its outcome is unknown";
    /// The result of a call that the conversation continued without.
    pub(crate) const LEFT: &str = "no result: the conversation continued before this tool \
                                   returned; its outcome is unknown";
    /// The result of a call of an agent that has ended.
    pub(crate) const AGENT_ENDED: &str = "not run: the agent has ended";
    /// The result of a call of an agent that another has replaced.
    pub(crate) const AGENT_STOPPED: &str = "not run: the agent that made this call has stopped";

    /// The result of a call of an answer that was cut off at its limit of length.
    pub(crate) const CUT_OFF: &str = "not called: your answer was cut off at its maximum length, and \
                                      none of its calls was made; make the call again in a shorter \
                                      answer, or do it in smaller steps";
    /// The result of a call of an answer that the provider's content filter stopped.
    pub(crate) const FILTERED: &str = "not called: the content filter of the model's provider \
                                       stopped your answer, and none of its calls was made";

    /// Returns whether the run has written this itself, since the call was not made or did not
    /// return: the text is constant, and says nothing that a tool could have chosen.
    #[must_use]
    pub fn is_of_run(&self) -> bool {
        let texts = [
            Self::STOPPED,
            Self::LEFT,
            Self::AGENT_ENDED,
            Self::AGENT_STOPPED,
            Self::CUT_OFF,
            Self::FILTERED,
        ];
        match &self.parts[..] {
            [Part::Text(text)] => self.is_error && texts.contains(&&*text.text),
            _ => false,
        }
    }

    /// Creates the result of `call`.
    pub fn new(call: &ToolCall, parts: impl IntoIterator<Item = Part>) -> Self {
        Self {
            call_id: call.id.clone(),
            name: call.name.clone(),
            parts: parts.into_iter().collect(),
            is_error: false,
            is_error_text: false,
            answered_by: None,
        }
    }

    /// Creates the result of a call that the conversation has left, by an edit or after its process
    /// has died: nobody knows whether it was made, and the model reads that.
    ///
    /// ```
    /// use serde_json::json;
    /// use tower_agent::message::{ToolCall, ToolResult};
    ///
    /// let left = ToolResult::left(&ToolCall::new("call_1", "pay", json!({})));
    /// assert!(left.text().ends_with("its outcome is unknown"));
    /// assert!(left.is_of_run());
    /// ```
    pub fn left(call: &ToolCall) -> Self {
        Self::new(call, [Part::from_text(Self::LEFT)]).failed()
    }

    /// Returns the names of those who have answered the questions about the call, in their order,
    /// as the server knows them: who has approved it, or refused it. The model does not read them.
    #[must_use]
    pub fn answered_by(&self) -> &[String] {
        self.answered_by.as_ref().map_or(&[], |names| names)
    }

    pub(crate) fn set_answered_by(&mut self, names: Vec<String>) {
        self.answered_by = (!names.is_empty()).then(|| Arc::new(names));
    }

    /// Marks the result as a failure.
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

impl Media {
    /// Creates media without a name.
    pub fn new(source: MediaSource) -> Self {
        Self {
            source,
            name: None,
            provider: ProviderData::default(),
        }
    }

    /// Sets the name.
    pub fn with_name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }
}

impl From<MediaSource> for Media {
    fn from(source: MediaSource) -> Self {
        Self::new(source)
    }
}

impl Part {
    /// Returns the length of what it has as text, in bytes: of text, reasoning, a call or a result.
    /// Media and provider data have none. A fourth of it is a fair guess at the number of tokens.
    #[must_use]
    pub fn text_len(&self) -> usize {
        match self {
            Self::Text(text) => text.text.len(),
            Self::Reasoning(reasoning) => reasoning.text.len(),
            Self::ToolCall(call) => call.name.len() + call.arguments.as_str().len(),
            Self::ToolResult(result) => result.parts.iter().map(Self::text_len).sum(),
            Self::Image(_) | Self::Audio(_) | Self::Document(_) | Self::Provider(_) => 0,
        }
    }

    /// Creates a text part.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self::Text(Text {
            text: text.into(),
            ..Text::default()
        })
    }

    /// Creates a reasoning part.
    pub fn reasoning(text: impl Into<String>) -> Self {
        Self::Reasoning(Reasoning {
            text: text.into(),
            ..Reasoning::default()
        })
    }

    /// Creates an image part, of a [`MediaSource`] or of [`Media`].
    ///
    /// ```
    /// use tower_agent::Part;
    /// use tower_agent::message::MediaSource;
    ///
    /// let picture = Part::image(MediaSource::url("https://example.com/cat.png"));
    /// # drop(picture);
    /// ```
    pub fn image(media: impl Into<Media>) -> Self {
        Self::Image(Box::new(media.into()))
    }

    /// Creates an audio part.
    pub fn audio(media: impl Into<Media>) -> Self {
        Self::Audio(Box::new(media.into()))
    }

    /// Creates a document part.
    pub fn document(media: impl Into<Media>) -> Self {
        Self::Document(Box::new(media.into()))
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
            // The same text as `to_string` writes, without the machinery of `Display`; it cannot
            // fail.
            other => serde_json::to_string(other).unwrap_or_default(),
        })
    }
}
