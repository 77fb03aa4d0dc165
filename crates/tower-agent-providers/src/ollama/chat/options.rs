use serde::Serialize;
use serde_json::Value;

use crate::json::Object;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::model::{ReasoningEffort, ResponseFormat, Settings};

/// Writes `options`.
pub(super) fn options(settings: &Settings, num_ctx: Option<u32>, out: &mut Vec<u8>) -> Result<()> {
    let mut json = Object::new(out);
    json.optional("num_ctx", num_ctx)?;
    json.optional("temperature", settings.temperature)?;
    json.optional("top_p", settings.top_p)?;
    json.optional("num_predict", settings.max_tokens)?;
    json.optional("stop", Some(&settings.stop).filter(|stop| !stop.is_empty()))?;
    json.optional("seed", settings.seed)?;
    json.end()
}

/// The field `think`: a switch or a level.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Think<'a> {
    Whether(bool),
    Level(&'a str),
}

pub(super) fn think(effort: &ReasoningEffort) -> Result<Think<'_>> {
    Ok(match effort {
        ReasoningEffort::None => Think::Whether(false),
        ReasoningEffort::Minimal => {
            return Err(unsupported(
                "reasoning effort as `Minimal`: use `None` or `Low`",
            ));
        }
        ReasoningEffort::Low => Think::Level("low"),
        ReasoningEffort::Medium => Think::Level("medium"),
        ReasoningEffort::High => Think::Level("high"),
        ReasoningEffort::Other(word) => match &**word {
            "true" => Think::Whether(true),
            "false" => Think::Whether(false),
            level => Think::Level(level),
        },
        _ => return Err(unsupported("reasoning effort")),
    })
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum OllamaFormat<'a> {
    Json(&'static str),
    Schema(&'a Value),
}

pub(super) fn format(format: &ResponseFormat) -> Result<Option<OllamaFormat<'_>>> {
    Ok(match format {
        ResponseFormat::Text => None,
        ResponseFormat::Json => Some(OllamaFormat::Json("json")),
        ResponseFormat::JsonSchema { schema, .. } => Some(OllamaFormat::Schema(schema)),
        _ => return Err(unsupported("response format")),
    })
}
