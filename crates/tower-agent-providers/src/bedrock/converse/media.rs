use serde::Serialize;

use super::provider::invalid;
use crate::json::Object;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::MediaSource;

/// An image, a document or audio in the protocol's format.
pub(super) struct ConverseMedia<'a> {
    format: &'static str,
    source: Source<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Source<'a> {
    Bytes(&'a str),
    S3Location { uri: &'a str },
}

/// The formats of a kind of media by its media type.
pub(super) type Formats = &'static [(&'static str, &'static str)];

pub(super) const IMAGES: Formats = &[
    ("image/png", "png"),
    ("image/jpeg", "jpeg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
];

pub(super) const DOCUMENTS: Formats = &[
    ("application/pdf", "pdf"),
    ("text/plain", "txt"),
    ("text/markdown", "md"),
    ("text/html", "html"),
    ("text/csv", "csv"),
    ("application/msword", "doc"),
    (
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "docx",
    ),
    ("application/vnd.ms-excel", "xls"),
    (
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "xlsx",
    ),
];

pub(super) const AUDIO: Formats = &[
    ("audio/mpeg", "mp3"),
    ("audio/mp3", "mp3"),
    ("audio/wav", "wav"),
    ("audio/x-wav", "wav"),
    ("audio/aac", "aac"),
    ("audio/flac", "flac"),
    ("audio/ogg", "ogg"),
    ("audio/opus", "opus"),
    ("audio/mp4", "mp4"),
    ("audio/webm", "webm"),
];

impl<'a> ConverseMedia<'a> {
    pub(super) fn new(source: &'a MediaSource, formats: Formats) -> Result<Self> {
        let (media_type, source) = match source {
            MediaSource::Base64 { media_type, data } => (Some(media_type), Source::Bytes(data)),
            MediaSource::Url { url, media_type } if url.starts_with("s3://") => {
                (media_type.as_ref(), Source::S3Location { uri: url })
            }
            MediaSource::Url { .. } => {
                let message = "the protocol has no URL of media, except of S3: send the bytes";
                return Err(invalid(message));
            }
            _ => return Err(unsupported("source of media")),
        };
        let Some(media_type) = media_type else {
            return Err(invalid("the protocol requires the media type of media"));
        };
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let known = formats
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(essence));
        let Some((_, format)) = known else {
            return Err(invalid(format!(
                "the protocol has no such media as `{media_type}`"
            )));
        };
        Ok(Self { format, source })
    }

    /// Writes the fields of a block.
    pub(super) fn fields(&self, json: &mut Object<'_>) -> Result<()> {
        json.field("format", self.format)?;
        json.field("source", &self.source)
    }
}

/// Returns a document's name with the characters that are accepted: letters, digits, single white
/// space, `-`, parentheses and square brackets.
pub(super) fn document_name(name: &str) -> String {
    let mut accepted = String::with_capacity(name.len());
    for letter in name.chars() {
        let letter = match letter {
            '-' | '(' | ')' | '[' | ']' => letter,
            letter if letter.is_ascii_alphanumeric() => letter,
            letter if letter.is_whitespace() => ' ',
            _ => '-',
        };
        if letter != ' ' || !accepted.ends_with(' ') {
            accepted.push(letter);
        }
    }
    // The limit of the protocol.
    accepted.truncate(200);
    match accepted.trim() {
        "" => "document".to_owned(),
        accepted => accepted.to_owned(),
    }
}

/// Returns the media type of a format of images.
pub(super) fn image_type(format: &str) -> String {
    format!("image/{format}")
}
