use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::data::invalid;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::{Media, MediaSource};

/// The source of an image or a document in the protocol's format.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum BlockSource<'a> {
    Base64 {
        media_type: &'a str,
        data: &'a str,
    },
    Url {
        url: &'a str,
    },
    File {
        file_id: &'a str,
    },
    Text {
        media_type: &'static str,
        data: String,
    },
}

impl<'a> BlockSource<'a> {
    pub(super) fn of_image(image: &'a Media) -> Result<Self> {
        match &image.source {
            MediaSource::Base64 { media_type, data } => Ok(Self::Base64 { media_type, data }),
            other => Self::elsewhere(other, "image"),
        }
    }

    pub(super) fn of_document(document: &'a Media) -> Result<Self> {
        let MediaSource::Base64 { media_type, data } = &document.source else {
            return Self::elsewhere(&document.source, "document");
        };
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        match &*essence.to_ascii_lowercase() {
            "application/pdf" => Ok(Self::Base64 {
                media_type: "application/pdf",
                data,
            }),
            text if text.starts_with("text/") => Self::text(data),
            _ => Err(invalid(format!(
                "the protocol has no document of the type `{media_type}`: send a PDF or text"
            ))),
        }
    }

    fn text(data: &str) -> Result<Self> {
        let bytes = STANDARD
            .decode(data)
            .map_err(|error| invalid(format!("the document is not valid base64: {error}")))?;
        let data = String::from_utf8(bytes)
            .map_err(|_| invalid("the document is declared as text, but is not UTF-8"))?;
        Ok(Self::Text {
            media_type: "text/plain",
            data,
        })
    }

    fn elsewhere(source: &'a MediaSource, what: &str) -> Result<Self> {
        match source {
            MediaSource::Url { url, .. } => Ok(Self::Url { url }),
            MediaSource::File { id, .. } => Ok(Self::File { file_id: id }),
            _ => Err(unsupported(&format!("source of this {what}"))),
        }
    }
}
