use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::conversation;
use super::plain_text::write_text;
use super::provider::{PROTOCOL, PROVIDER, added, invalid};
use crate::anthropic::{describes, guaranteed};
use crate::json::{self, Object};
use crate::protocol::{Call, described as described_text, schema_of, unsupported};
use tower_agent::error::Result;
use tower_agent::model::{
    CacheRetention, PromptCache, ReasoningEffort, ResponseFormat, ServerToolKind, Settings,
    ToolChoice,
};
use tower_agent::tool::ToolDeclaration;

/// The fields that the caller's own cannot replace.
const GUARDED: &[&str] = &["messages", "toolConfig.tools", "outputConfig.textFormat"];

/// Writes the body of a call.
///
/// The messages come first, so that a body starts with the bytes of the previous one.
pub(super) fn body(call: &Call<'_>, out: &mut Vec<u8>) -> Result<()> {
    let request = call.request();
    let settings = request.settings();
    check(settings)?;
    let described = schema_of(call).filter(|schema| describes(schema).is_some());
    let text_format = match described {
        Some(_) => None,
        None => text_format(settings.response_format.as_ref())?,
    };
    let described = described.map(described_text);
    let cache_point = settings
        .prompt_cache
        .as_ref()
        .map(cache_point)
        .transpose()?;

    let extra = extra(settings)?;
    let mut json = Object::body(out, &extra, GUARDED);
    json.field_with("messages", |out| {
        conversation::write(request, cache_point.as_deref(), out)
    })?;
    let instructions = request
        .instructions()
        .filter(|text| !text.trim().is_empty());
    let mut system: Vec<_> = instructions.into_iter().collect();
    system.extend(conversation::system(request)?);
    system.extend(described.as_deref());
    if !system.is_empty() {
        json.array("system", |items| {
            for text in system {
                write_text(text, items)?;
            }
            Ok(())
        })?;
    }
    let has_tools = !request.tools().is_empty();
    // A choice without tools is rejected; those of the server stand in `extra`.
    if has_tools || extra.contains_key("toolConfig") {
        let choice = settings.tool_choice.as_ref().map(tool_choice).transpose()?;
        json.field_with("toolConfig", |out| {
            let mut json = Object::new(out);
            json.field_with("tools", |out| {
                request.write_tools(PROTOCOL, out, |out| {
                    json::array(out, request.tools(), |declaration, out| {
                        tool(declaration, out)
                    })
                })
            })?;
            json.optional("toolChoice", choice)?;
            json.end()
        })?;
    }
    let inference = InferenceConfig::of(settings);
    json.optional(
        "inferenceConfig",
        Some(inference).filter(|config| *config != InferenceConfig::default()),
    )?;
    let effort = settings.reasoning_effort.as_ref();
    let output = ConverseOutputConfig {
        effort: effort.map(effort_word).transpose()?,
        text_format,
    };
    json.optional(
        "outputConfig",
        Some(output).filter(ConverseOutputConfig::is_set),
    )?;
    json.end()
}

/// Fails for a setting that the protocol does not have.
fn check(settings: &Settings) -> Result<()> {
    if settings.seed.is_some() {
        return Err(invalid("the protocol has no `seed`: leave it unset"));
    }
    if settings.parallel_tool_calls == Some(false) {
        return Err(unsupported("setting as `parallel_tool_calls: false`"));
    }
    if settings.tool_choice == Some(ToolChoice::None) {
        return Err(unsupported("tool choice as `None`: leave the tools out"));
    }
    Ok(())
}

/// Returns the caller's fields, with the tools of the server among the tools, and without the
/// model, which stands in the path.
fn extra(settings: &Settings) -> Result<Cow<'_, Map<String, Value>>> {
    let mut extra = Cow::Borrowed(&settings.extra);
    if extra.contains_key("model") {
        extra.to_mut().remove("model");
    }
    for tool in &settings.server_tools {
        let Some(value) = tool.for_provider(PROVIDER, server_tool(tool.kind)) else {
            let name = tool.kind.name();
            return Err(unsupported(&format!("server tool as `{name}`")));
        };
        let config = extra.to_mut().entry("toolConfig");
        let config = config.or_insert_with(|| json!({}));
        match &mut config["tools"] {
            Value::Array(tools) => tools.push(value),
            none @ Value::Null => *none = json!([value]),
            _ => {
                let what = "extra field as `toolConfig.tools`: send a list";
                return Err(unsupported(what));
            }
        }
    }
    Ok(extra)
}

/// Returns a tool of the server, which the models of Amazon have.
fn server_tool(kind: ServerToolKind) -> Option<Value> {
    let name = match kind {
        ServerToolKind::WebSearch => "nova_grounding",
        ServerToolKind::CodeExecution => "nova_code_interpreter",
        _ => return None,
    };
    Some(json!({ "systemTool": { "name": name } }))
}

fn tool(tool: &ToolDeclaration, out: &mut Vec<u8>) -> Result<()> {
    let fields = added(tool.provider());
    let mut json = Object::new(out);
    json.field_with("toolSpec", |out| {
        let mut json = Object::with_extra(out, fields);
        json.field("name", tool.name())?;
        json.optional(
            "description",
            Some(tool.description()).filter(|text| !text.is_empty()),
        )?;
        json.field_with("inputSchema", |out| {
            let mut json = Object::new(out);
            json.field("json", tool.parameters())?;
            json.end()
        })?;
        json.end_with_nulls()
    })?;
    json.end()
}

fn tool_choice(choice: &ToolChoice) -> Result<Value> {
    match choice {
        ToolChoice::Auto => Ok(json!({ "auto": {} })),
        ToolChoice::Required => Ok(json!({ "any": {} })),
        ToolChoice::Tool(name) => Ok(json!({ "tool": { "name": &**name } })),
        _ => Err(unsupported("tool choice")),
    }
}

#[derive(Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct InferenceConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    stop_sequences: &'a [String],
}

impl<'a> InferenceConfig<'a> {
    fn of(settings: &'a Settings) -> Self {
        Self {
            max_tokens: settings.max_tokens,
            temperature: settings.temperature,
            top_p: settings.top_p,
            stop_sequences: &settings.stop,
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ConverseOutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_format: Option<Value>,
}

impl ConverseOutputConfig<'_> {
    fn is_set(&self) -> bool {
        self.effort.is_some() || self.text_format.is_some()
    }
}

fn effort_word(effort: &ReasoningEffort) -> Result<&str> {
    match effort {
        ReasoningEffort::None => {
            let what = "reasoning effort as `None`: leave it unset";
            Err(unsupported(what))
        }
        // The protocol has no less.
        ReasoningEffort::Minimal | ReasoningEffort::Low => Ok("low"),
        ReasoningEffort::Medium => Ok("medium"),
        ReasoningEffort::High => Ok("high"),
        ReasoningEffort::Other(word) => Ok(word),
        _ => Err(unsupported("reasoning effort")),
    }
}

fn text_format(format: Option<&ResponseFormat>) -> Result<Option<Value>> {
    match format {
        None | Some(ResponseFormat::Text) => Ok(None),
        Some(ResponseFormat::JsonSchema { name, schema, .. }) => {
            // The schema is sent as text.
            let schema = guaranteed(schema).to_string();
            let definition = json!({ "name": &**name, "schema": schema });
            Ok(Some(
                json!({ "type": "json_schema", "structure": { "jsonSchema": definition } }),
            ))
        }
        Some(ResponseFormat::Json) => Err(invalid(
            "the protocol has no JSON without a schema: use `ResponseFormat::JsonSchema`",
        )),
        Some(_) => Err(unsupported("response format")),
    }
}

/// Returns the block after what is to be cached.
fn cache_point(cache: &PromptCache) -> Result<String> {
    let mut point = json!({ "type": "default" });
    match cache.retention {
        None => {}
        Some(CacheRetention::Short) => point["ttl"] = "5m".into(),
        Some(CacheRetention::Long) => point["ttl"] = "1h".into(),
        Some(_) => return Err(unsupported("cache retention")),
    }
    Ok(json!({ "cachePoint": point }).to_string())
}
