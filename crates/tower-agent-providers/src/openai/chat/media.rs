use serde::Serialize;
use serde_json::{Map, Value};

use super::super::media::{MediaUrl, audio_format, file_name};
use super::provider::added;
use crate::json::Object;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::{Media, MediaSource, Part};

/// An image, audio or a document in the protocol's format.
pub(super) struct ChatMedia<'a> {
    kind: MediaKind<'a>,
    more: Option<&'a Map<String, Value>>,
}

enum MediaKind<'a> {
    Image(ImageUrl<'a>),
    Audio(InputAudio<'a>),
    File(ChatFile<'a>),
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: MediaUrl<'a>,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
struct ChatFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<MediaUrl<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<&'a str>,
}

impl<'a> ChatMedia<'a> {
    /// Returns the media of a part, or nothing for other parts.
    pub(super) fn of(part: &'a Part) -> Result<Option<Self>> {
        let (kind, provider) = match part {
            Part::Image(part) => (image(part)?, &part.provider),
            Part::Audio(part) => (audio(part)?, &part.provider),
            Part::Document(part) => (document(part)?, &part.provider),
            _ => return Ok(None),
        };
        Ok(Some(Self {
            kind,
            more: added(provider),
        }))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut json = Object::with_extra(out, self.more);
        match &self.kind {
            MediaKind::Image(image) => {
                json.field("type", "image_url")?;
                json.field("image_url", image)?;
            }
            MediaKind::Audio(audio) => {
                json.field("type", "input_audio")?;
                json.field("input_audio", audio)?;
            }
            MediaKind::File(file) => {
                json.field("type", "file")?;
                json.field("file", file)?;
            }
        }
        json.end_with_nulls()
    }
}

fn image(image: &Media) -> Result<MediaKind<'_>> {
    let url = match &image.source {
        MediaSource::Url { url, .. } => MediaUrl::At(url),
        MediaSource::Base64 { media_type, data } => MediaUrl::Data { media_type, data },
        MediaSource::File { .. } => {
            return Err(unsupported("image by file id: send a URL or base64"));
        }
        _ => return Err(unsupported("source of an image")),
    };
    Ok(MediaKind::Image(ImageUrl { url }))
}

fn audio(audio: &Media) -> Result<MediaKind<'_>> {
    let MediaSource::Base64 { media_type, data } = &audio.source else {
        return Err(unsupported("audio by URL or file id: send base64"));
    };
    let format = audio_format(media_type)?;
    Ok(MediaKind::Audio(InputAudio { data, format }))
}

fn document(document: &Media) -> Result<MediaKind<'_>> {
    let name = document.name.as_deref();
    Ok(MediaKind::File(match &document.source {
        MediaSource::Base64 { media_type, data } => ChatFile {
            file_data: Some(MediaUrl::Data { media_type, data }),
            // The protocol requires a name for data, though not for a file that was uploaded.
            filename: Some(name.unwrap_or(file_name(media_type))),
            file_id: None,
        },
        MediaSource::File { id, .. } => ChatFile {
            file_data: None,
            filename: name,
            file_id: Some(id),
        },
        MediaSource::Url { .. } => {
            return Err(unsupported("document by URL: send base64 or a file id"));
        }
        _ => return Err(unsupported("source of a document")),
    }))
}
