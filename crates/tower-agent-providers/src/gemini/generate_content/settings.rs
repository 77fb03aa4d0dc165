use serde::Serialize;
use serde_json::Value;

use super::super::seed::seed;
use crate::json::Object;
use crate::protocol::unsupported;
use tower_agent::error::Result;
use tower_agent::model::{ReasoningEffort, ResponseFormat, Settings, ToolChoice};

/// Writes `generationConfig`.
pub(super) fn generation_config(
    settings: &Settings,
    response_format: Option<&ResponseFormat>,
    is_before_3: bool,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut json = Object::new(out);
    json.optional("temperature", settings.temperature)?;
    json.optional("topP", settings.top_p)?;
    json.optional("maxOutputTokens", settings.max_tokens)?;
    json.optional(
        "stopSequences",
        Some(&settings.stop).filter(|stop| !stop.is_empty()),
    )?;
    json.optional("seed", settings.seed.map(seed).transpose()?)?;
    let (media_type, schema) = format(response_format)?;
    json.optional("responseMimeType", media_type)?;
    json.optional("responseJsonSchema", schema)?;
    let effort = settings.reasoning_effort.as_ref();
    json.optional(
        "thinkingConfig",
        effort
            .map(|effort| thinking(effort, is_before_3))
            .transpose()?,
    )?;
    json.end()
}

type FormatFields<'a> = (Option<&'static str>, Option<&'a Value>);

fn format(format: Option<&ResponseFormat>) -> Result<FormatFields<'_>> {
    Ok(match format {
        None => (None, None),
        Some(ResponseFormat::Text) => (Some("text/plain"), None),
        Some(ResponseFormat::Json) => (Some("application/json"), None),
        Some(ResponseFormat::JsonSchema { schema, .. }) => (Some("application/json"), Some(schema)),
        Some(_) => return Err(unsupported("response format")),
    })
}

/// A model takes either a level or a budget.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<i32>,
    include_thoughts: bool,
}

fn thinking(effort: &ReasoningEffort, is_before_3: bool) -> Result<ThinkingConfig<'_>> {
    let (word, budget) = match effort {
        // Without thoughts, whatever a server's default is.
        ReasoningEffort::None if is_before_3 => {
            return Ok(ThinkingConfig {
                thinking_budget: Some(0),
                ..ThinkingConfig::default()
            });
        }
        ReasoningEffort::None => {
            return Err(unsupported(
                "reasoning effort as `None` from Gemini 3 on: use `Minimal`",
            ));
        }
        ReasoningEffort::Minimal => ("minimal", is_before_3.then_some(1024)),
        ReasoningEffort::Low => ("low", is_before_3.then_some(1024)),
        ReasoningEffort::Medium => ("medium", is_before_3.then_some(8192)),
        ReasoningEffort::High => ("high", is_before_3.then_some(24_576)),
        // The caller knows the model: a number is a budget, any other word a level.
        ReasoningEffort::Other(word) => (&**word, word.parse().ok()),
        _ => return Err(unsupported("reasoning effort")),
    };
    Ok(ThinkingConfig {
        // Only one of the two: a request with both is rejected.
        thinking_level: budget.is_none().then_some(word),
        thinking_budget: budget,
        include_thoughts: true,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig<'a> {
    function_calling_config: FunctionCalling<'a>,
}

impl<'a> ToolConfig<'a> {
    pub(super) fn new(function_calling_config: FunctionCalling<'a>) -> Self {
        Self {
            function_calling_config,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionCalling<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

/// Returns the `functionCallingConfig`.
pub(super) fn function_calling(choice: &ToolChoice) -> Result<FunctionCalling<'_>> {
    let (mode, only) = match choice {
        ToolChoice::Auto => ("AUTO", None),
        ToolChoice::None => ("NONE", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Tool(name) => ("ANY", Some([&**name])),
        _ => return Err(unsupported("tool choice")),
    };
    Ok(FunctionCalling {
        mode,
        allowed_function_names: only,
    })
}
