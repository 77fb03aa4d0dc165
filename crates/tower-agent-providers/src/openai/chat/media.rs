use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::message::{added, unknown};
use crate::json::Object;
use tower_agent::error::Result;
use tower_agent::message::{Audio, Document, Image, MediaSource, Part};

/// An image, audio or a document in the protocol's format.
pub(super) struct Media<'a> {
    kind: Kind<'a>,
    more: Option<&'a Map<String, Value>>,
}

enum Kind<'a> {
    Image(ImageUrl<'a>),
    Audio(InputAudio<'a>),
    File(File<'a>),
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Url<'a>,
}

#[derive(Serialize)]
struct InputAudio<'a> {
    data: &'a str,
    format: &'static str,
}

#[derive(Serialize)]
struct File<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file_data: Option<Url<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_id: Option<&'a str>,
}

/// A URL, or data as a `data:` URL, written without a copy.
enum Url<'a> {
    At(&'a str),
    Data { media_type: &'a str, data: &'a str },
}

impl fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(url) => f.write_str(url),
            Self::Data { media_type, data } => write!(f, "data:{media_type};base64,{data}"),
        }
    }
}

impl Serialize for Url<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'a> Media<'a> {
    /// Returns the media of a part, or nothing for other parts.
    pub(super) fn of(part: &'a Part) -> Result<Option<Self>> {
        let (kind, provider) = match part {
            Part::Image(it) => (image(it)?, &it.provider),
            Part::Audio(it) => (audio(it)?, &it.provider),
            Part::Document(it) => (document(it)?, &it.provider),
            _ => return Ok(None),
        };
        Ok(Some(Self { kind, more: added(provider) }))
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        let mut json = Object::with_extra(out, self.more);
        match &self.kind {
            Kind::Image(image) => {
                json.field("type", "image_url")?;
                json.field("image_url", image)?;
            }
            Kind::Audio(audio) => {
                json.field("type", "input_audio")?;
                json.field("input_audio", audio)?;
            }
            Kind::File(file) => {
                json.field("type", "file")?;
                json.field("file", file)?;
            }
        }
        json.end_with_nulls()
    }
}

fn image(image: &Image) -> Result<Kind<'_>> {
    let url = match &image.source {
        MediaSource::Url { url, .. } => Url::At(url),
        MediaSource::Base64 { media_type, data } => Url::Data { media_type, data },
        MediaSource::File { .. } => {
            return Err(unknown("image by file id: send a URL or base64"));
        }
        _ => return Err(unknown("source of an image")),
    };
    Ok(Kind::Image(ImageUrl { url }))
}

fn audio(audio: &Audio) -> Result<Kind<'_>> {
    let MediaSource::Base64 { media_type, data } = &audio.source else {
        return Err(unknown("audio by URL or file id: send base64"));
    };
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    let format = match &*essence.to_ascii_lowercase() {
        "audio/wav" | "audio/wave" | "audio/x-wav" | "audio/vnd.wave" => "wav",
        "audio/mp3" | "audio/mpeg" => "mp3",
        _ => return Err(unknown(&format!("audio of the type `{media_type}`: send WAV or MP3"))),
    };
    Ok(Kind::Audio(InputAudio { data, format }))
}

fn document(document: &Document) -> Result<Kind<'_>> {
    let name = document.name.as_deref();
    Ok(Kind::File(match &document.source {
        MediaSource::Base64 { media_type, data } => File {
            file_data: Some(Url::Data { media_type, data }),
            // OpenAI requires a name.
            filename: name.or(Some(match &**media_type {
                "application/pdf" => "document.pdf",
                _ => "document",
            })),
            file_id: None,
        },
        MediaSource::File { id, .. } => File { file_data: None, filename: name, file_id: Some(id) },
        MediaSource::Url { .. } => {
            return Err(unknown("document by URL: send base64 or a file id"));
        }
        _ => return Err(unknown("source of a document")),
    }))
}
