use serde::{Deserialize, Serialize};

/// The source of an image, of audio or of a document.
///
/// A provider that cannot read a source returns an `InvalidRequest` error before anything is sent.
///
/// ```
/// use tower_agent::message::MediaSource;
/// use tower_agent::{Message, Part};
///
/// let picture = MediaSource::url("https://example.com/cat").with_media_type("image/png");
/// let message = Message::user("What is on this picture?").with_part(Part::image(picture));
/// assert_eq!(message.parts().len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[must_use]
pub enum MediaSource {
    /// A URL that the provider fetches: with the key of the request, from a host of its own, or
    /// from the network of a model that you serve yourself. A URL of somebody else decides what is
    /// read there; the servers for AG-UI and for protocols of your own accept [public
    /// ones](https://docs.rs/tower-agent-conversations/latest/tower_agent_conversations/struct.Threads.html#method.allow_urls).
    Url {
        /// The URL.
        url: String,
        /// The media type, such as `image/png`, if it is known. Some providers require it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
    /// Inline data, in base64.
    Base64 {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The data, in base64.
        data: String,
    },
    /// A file that was uploaded to the provider.
    File {
        /// The provider's id of the file; for Gemini its URI.
        id: String,
        /// The media type, such as `image/png`, if it is known. Some providers require it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
}

impl MediaSource {
    /// Creates a source with a URL.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url {
            url: url.into(),
            media_type: None,
        }
    }

    /// Creates a source with data in base64; `media_type` is, for example, `image/png`.
    pub fn base64(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::Base64 {
            media_type: media_type.into(),
            data: data.into(),
        }
    }

    /// Creates a source with the id of a file that was uploaded to the provider.
    pub fn file(id: impl Into<String>) -> Self {
        Self::File {
            id: id.into(),
            media_type: None,
        }
    }

    /// Returns the media type, if it is known.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        match self {
            Self::Base64 { media_type, .. } => Some(media_type),
            Self::Url { media_type, .. } | Self::File { media_type, .. } => media_type.as_deref(),
        }
    }

    /// Sets the media type.
    pub fn with_media_type(mut self, to: impl Into<String>) -> Self {
        match &mut self {
            Self::Base64 { media_type, .. } => *media_type = to.into(),
            Self::Url { media_type, .. } | Self::File { media_type, .. } => {
                *media_type = Some(to.into());
            }
        }
        self
    }
}
