use serde::Serialize;

use super::super::model::NO_SIGNATURE;
use super::provider::{PROVIDER, added};
use crate::json::{self, Object, write};
use crate::protocol::{joined, tool_name, unsupported};
use tower_agent::error::Result;
use tower_agent::message::{MediaSource, Part, ProviderData, ToolCall, ToolResult};

/// Returns whether a part is sent as one. Results are sent in contents of their own.
pub(super) fn is_sent(part: &Part) -> bool {
    match part {
        Part::Text(text) => !text.text.is_empty() || added(&text.provider).is_some(),
        // Without a signature it means nothing to the model; that of others goes nowhere.
        Part::Reasoning(reasoning) => added(&reasoning.provider).is_some(),
        Part::Provider(data) => data.get(PROVIDER).is_some(),
        Part::ToolResult(_) => false,
        // Unsupported parts are an error.
        _ => true,
    }
}

/// Writes a part. `must_be_signed` is set for a tool call that needs a signature, its own or not.
pub(super) fn write_part(part: &Part, must_be_signed: bool, out: &mut Vec<u8>) -> Result<()> {
    match part {
        Part::Text(text) => write_text(&text.text, &text.provider, out),
        Part::Reasoning(reasoning) => {
            let mut json = Object::with_extra(out, added(&reasoning.provider));
            json.field("text", &reasoning.text)?;
            json.field("thought", true)?;
            json.end_with_nulls()
        }
        Part::Image(image) => media(&image.source, &image.provider, out),
        Part::Audio(audio) => media(&audio.source, &audio.provider, out),
        Part::Document(document) => media(&document.source, &document.provider, out),
        Part::ToolCall(call) => {
            // The call's own signature replaces this one.
            let mut json = Object::with_extra(out, added(&call.provider));
            json.field_with("functionCall", |out| function_call(call, out))?;
            json.optional("thoughtSignature", must_be_signed.then_some(NO_SIGNATURE))?;
            json.end_with_nulls()
        }
        Part::Provider(data) => write(out, data.get(PROVIDER)),
        _ => Err(unsupported("part of a message")),
    }
}

pub(super) fn write_text(text: &str, provider: &ProviderData, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(provider));
    json.field("text", text)?;
    json.end_with_nulls()
}

fn function_call(call: &ToolCall, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out);
    json.field("id", &*call.id)?;
    json.field("name", tool_name(&call.name))?;
    json.field_with("args", |out| json::arguments(out, &call.arguments))?;
    json.end()
}

/// Writes a result without its media.
pub(super) fn write_result(result: &ToolResult, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out);
    json.field_with("functionResponse", |out| {
        let mut json = Object::new(out);
        json.field("id", &*result.call_id)?;
        json.field("name", tool_name(&result.name))?;
        json.field_with("response", |out| {
            let mut json = Object::new(out);
            let name = if result.is_error { "error" } else { "output" };
            json.field(name, joined(&result.parts, "\n"))?;
            json.end()
        })?;
        json.end()
    })?;
    json.end()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FileData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    file_uri: &'a str,
}

fn media(source: &MediaSource, provider: &ProviderData, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::with_extra(out, added(provider));
    let mime_type = source.media_type();
    match source {
        MediaSource::Base64 { media_type, data } => {
            json.field(
                "inlineData",
                Inline {
                    mime_type: media_type,
                    data,
                },
            )?;
        }
        MediaSource::Url { url, .. } => {
            json.field(
                "fileData",
                FileData {
                    mime_type,
                    file_uri: url,
                },
            )?;
        }
        MediaSource::File { id, .. } => {
            json.field(
                "fileData",
                FileData {
                    mime_type,
                    file_uri: id,
                },
            )?;
        }
        _ => return Err(unsupported("source of an image, of audio or of a document")),
    }
    json.end_with_nulls()
}
