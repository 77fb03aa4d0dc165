use std::fmt;

use serde::{Serialize, Serializer};

use crate::protocol::unsupported;
use tower_agent::error::Result;

/// A URL, or data as a `data:` URL, written without a copy.
pub(super) enum MediaUrl<'a> {
    At(&'a str),
    Data { media_type: &'a str, data: &'a str },
}

impl fmt::Display for MediaUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(url) => f.write_str(url),
            Self::Data { media_type, data } => write!(f, "data:{media_type};base64,{data}"),
        }
    }
}

impl Serialize for MediaUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the protocols' name of an audio format.
pub(super) fn audio_format(media_type: &str) -> Result<&'static str> {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    Ok(match &*essence.to_ascii_lowercase() {
        "audio/wav" | "audio/wave" | "audio/x-wav" | "audio/vnd.wave" => "wav",
        "audio/mp3" | "audio/mpeg" => "mp3",
        _ => {
            return Err(unsupported(&format!(
                "audio of the type `{media_type}`: send WAV or MP3"
            )));
        }
    })
}

/// Returns a name for a file without one, since OpenAI requires it.
pub(super) fn file_name(media_type: &str) -> &'static str {
    match media_type {
        "application/pdf" => "document.pdf",
        _ => "document",
    }
}
