use serde::Serialize;
use serde_json::Value;

use super::super::seed::seed;
use crate::json::Object;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::model::{ReasoningEffort, ResponseFormat, Settings, ToolChoice};

/// Writes `generation_config`.
pub(super) fn generation_config(
    settings: &Settings,
    has_tools: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut json = Object::new(out);
    json.optional("temperature", settings.temperature)?;
    json.optional("top_p", settings.top_p)?;
    json.optional("max_output_tokens", settings.max_tokens)?;
    json.optional(
        "stop_sequences",
        Some(&settings.stop).filter(|stop| !stop.is_empty()),
    )?;
    json.optional("seed", settings.seed.map(seed).transpose()?)?;
    json.optional(
        "thinking_level",
        settings
            .reasoning_effort
            .as_ref()
            .map(thinking_level)
            .transpose()?,
    )?;
    // A choice without functions is rejected.
    let choice = settings.tool_choice.as_ref().filter(|_| has_tools);
    json.optional("tool_choice", choice.map(tool_choice).transpose()?)?;
    json.end()
}

fn thinking_level(effort: &ReasoningEffort) -> Result<&str> {
    Ok(match effort {
        ReasoningEffort::None => {
            return Err(unsupported("reasoning effort as `None`: use `Minimal`"));
        }
        ReasoningEffort::Minimal => "minimal",
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Other(word) => word,
        _ => return Err(unsupported("reasoning effort")),
    })
}

#[derive(Serialize)]
#[serde(untagged)]
enum InteractionToolChoice<'a> {
    Mode(&'static str),
    Only { allowed_tools: AllowedTools<'a> },
}

#[derive(Serialize)]
struct AllowedTools<'a> {
    mode: &'static str,
    tools: [&'a str; 1],
}

fn tool_choice(choice: &ToolChoice) -> Result<InteractionToolChoice<'_>> {
    Ok(match choice {
        ToolChoice::Auto => InteractionToolChoice::Mode("auto"),
        ToolChoice::None => InteractionToolChoice::Mode("none"),
        ToolChoice::Required => InteractionToolChoice::Mode("any"),
        ToolChoice::Tool(name) => InteractionToolChoice::Only {
            allowed_tools: AllowedTools {
                mode: "any",
                tools: [name],
            },
        },
        _ => return Err(unsupported("tool choice")),
    })
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "text")]
pub(super) struct TextResponseFormat<'a> {
    mime_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'a Value>,
}

pub(super) fn response_format(format: &ResponseFormat) -> Result<TextResponseFormat<'_>> {
    let (mime_type, schema) = match format {
        ResponseFormat::Text => ("text/plain", None),
        ResponseFormat::Json => ("application/json", None),
        ResponseFormat::JsonSchema { schema, .. } => ("application/json", Some(schema)),
        _ => return Err(unsupported("response format")),
    };
    Ok(TextResponseFormat { mime_type, schema })
}
