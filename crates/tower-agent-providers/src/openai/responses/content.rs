use serde_json::{Map, Value};

use super::super::media::{MediaUrl, audio_format, file_name};
use super::provider::{PROVIDER, added};
use crate::json::{self, Object, write};
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::message::{Media, MediaSource, Part, ProviderData};

/// Writes what a message says to the model: a string if it is one plain text, otherwise a list.
pub(super) fn content(parts: &[&Part], out: &mut Vec<u8>) -> Result<()> {
    match parts {
        [] => write(out, ""),
        [Part::Text(text)] if added(&text.provider).is_none() => write(out, &text.text),
        parts => json::array(out, parts, |part, out| input_part(part, out)),
    }
}

/// Returns whether a part belongs in what a message says to the model.
pub(super) fn is_content(part: &Part) -> bool {
    match part {
        Part::Provider(data) => data.get(PROVIDER).is_some(),
        Part::Reasoning(_) | Part::ToolCall(_) | Part::ToolResult(_) => false,
        // An unsupported part is an error.
        _ => true,
    }
}

fn input_part(part: &Part, out: &mut Vec<u8>) -> Result<()> {
    match part {
        Part::Text(text) => {
            let mut json = typed("input_text", &text.provider, out)?;
            json.field("text", &text.text)?;
            json.end_with_nulls()
        }
        Part::Image(image) => input_image(image, out),
        Part::Audio(audio) => input_audio(audio, out),
        Part::Document(document) => input_file(document, out),
        Part::Provider(data) => write(out, data.get(PROVIDER)),
        _ => Err(unsupported("part of a message")),
    }
}

fn typed<'a>(kind: &str, provider: &'a ProviderData, out: &'a mut Vec<u8>) -> Result<Object<'a>> {
    let more: Option<&Map<String, Value>> = added(provider);
    let mut json = Object::with_extra(out, more);
    json.field("type", kind)?;
    Ok(json)
}

fn input_image(image: &Media, out: &mut Vec<u8>) -> Result<()> {
    let mut json = typed("input_image", &image.provider, out)?;
    match &image.source {
        MediaSource::Url { url, .. } => json.field("image_url", url)?,
        MediaSource::Base64 { media_type, data } => {
            json.field("image_url", MediaUrl::Data { media_type, data })?;
        }
        MediaSource::File { id, .. } => json.field("file_id", id)?,
        _ => return Err(unsupported("source of an image")),
    }
    json.end_with_nulls()
}

fn input_audio(audio: &Media, out: &mut Vec<u8>) -> Result<()> {
    let MediaSource::Base64 { media_type, data } = &audio.source else {
        return Err(unsupported("audio by URL or file id: send base64"));
    };
    let format = audio_format(media_type)?;
    let mut json = typed("input_audio", &audio.provider, out)?;
    json.field_with("input_audio", |out| {
        let mut json = Object::new(out);
        json.field("data", data)?;
        json.field("format", format)?;
        json.end()
    })?;
    json.end_with_nulls()
}

fn input_file(document: &Media, out: &mut Vec<u8>) -> Result<()> {
    let mut json = typed("input_file", &document.provider, out)?;
    let name = document.name.as_deref();
    match &document.source {
        MediaSource::Url { url, .. } => json.field("file_url", url)?,
        MediaSource::Base64 { media_type, data } => {
            json.field("filename", name.unwrap_or(file_name(media_type)))?;
            json.field("file_data", MediaUrl::Data { media_type, data })?;
        }
        MediaSource::File { id, .. } => json.field("file_id", id)?,
        _ => return Err(unsupported("source of a document")),
    }
    json.end_with_nulls()
}
