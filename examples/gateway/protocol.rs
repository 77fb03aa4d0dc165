//! The protocol of OpenAI's chat completions, as a server.

use std::sync::Arc;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::model::{ResponseFormat, ToolChoice};
use tower_agent::stream::EventKind;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{
    Error, ErrorKind, Message, ModelRequest, ModelResponse, Part, Result, Role, Settings, Usage,
};

/// The body of a request. A field that is not here is an error: it would be lost without a word.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatRequest {
    model: String,
    messages: Vec<ChatMessage>,
    #[serde(default)]
    pub(crate) stream: bool,
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    tools: Vec<ChatTool>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<u32>,
    stop: Option<OneOrMore>,
    seed: Option<u64>,
    response_format: Option<ChatFormat>,
    frequency_penalty: Option<Value>,
    presence_penalty: Option<Value>,
    logit_bias: Option<Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum ChatMessage {
    #[serde(alias = "developer")]
    System {
        content: Content,
    },
    User {
        content: Content,
    },
    Assistant {
        content: Option<Content>,
        #[serde(default)]
        tool_calls: Vec<ChatCall>,
    },
    Tool {
        content: Content,
        tool_call_id: String,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Deserialize)]
struct ImageUrl {
    url: String,
}

#[derive(Deserialize)]
struct ChatCall {
    id: String,
    function: CalledFunction,
}

#[derive(Deserialize)]
struct CalledFunction {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct ChatTool {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    description: String,
    parameters: Option<Value>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ChatFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: JsonSchema },
}

#[derive(Deserialize)]
struct JsonSchema {
    name: String,
    #[serde(default)]
    schema: Value,
    #[serde(default)]
    strict: bool,
}

impl TryFrom<ChatRequest> for ModelRequest {
    type Error = Error;

    fn try_from(request: ChatRequest) -> Result<Self> {
        let mut messages = Vec::new();
        for message in request.messages {
            let message = message.read(&messages)?;
            messages.push(message);
        }
        // Those at the beginning are the system prompt, which every protocol has.
        let first = messages
            .iter()
            .position(|message| message.role() != Role::System);
        let rest = messages.split_off(first.unwrap_or(messages.len()));
        let prompts: Vec<_> = messages.iter().map(Message::text).collect();
        let tools = request.tools.into_iter().map(|tool| Arc::new(tool.read()));
        let mut settings = Settings::default();
        settings.model = Some(request.model);
        settings.temperature = request.temperature;
        settings.top_p = request.top_p;
        settings.max_tokens = request.max_tokens;
        settings.seed = request.seed;
        settings.parallel_tool_calls = request.parallel_tool_calls;
        settings.tool_choice = request.tool_choice.map(tool_choice).transpose()?;
        settings.response_format = request.response_format.map(ChatFormat::read);
        settings.stop = match request.stop {
            Some(OneOrMore::One(text)) => vec![text],
            Some(OneOrMore::More(texts)) => texts,
            None => Vec::new(),
        };
        let others = [
            ("frequency_penalty", request.frequency_penalty),
            ("presence_penalty", request.presence_penalty),
            ("logit_bias", request.logit_bias),
        ];
        for (name, value) in others {
            if let Some(value) = value {
                settings.extra.insert(name.to_owned(), value);
            }
        }
        let mut read = ModelRequest::new(rest)
            .with_tools(Arc::new(tools.collect()))
            .with_settings(settings);
        if !prompts.is_empty() {
            read.add_instructions(&prompts.join("\n\n"));
        }
        Ok(read)
    }
}

impl ChatMessage {
    fn read(self, before: &[Message]) -> Result<Message> {
        Ok(match self {
            Self::System { content } => Message::new(Role::System, content.read()),
            Self::User { content } => Message::new(Role::User, content.read()),
            Self::Assistant {
                content,
                tool_calls,
            } => {
                let mut parts = content.map(Content::read).unwrap_or_default();
                for ChatCall { id, function } in tool_calls {
                    let call = ToolCall::from_text(id, function.name, function.arguments);
                    parts.push(Part::from(call));
                }
                Message::new(Role::Assistant, parts)
            }
            Self::Tool {
                content,
                tool_call_id,
            } => {
                let mut calls = before.iter().rev().flat_map(Message::tool_calls);
                let call = calls
                    .find(|call| *call.id == *tool_call_id)
                    .ok_or_else(|| {
                        invalid(format!("no call before has the id `{tool_call_id}`"))
                    })?;
                Message::tool(ToolResult::new(call, content.read()))
            }
        })
    }
}

impl Content {
    fn read(self) -> Vec<Part> {
        match self {
            Self::Text(text) => vec![Part::from_text(text)],
            Self::Parts(parts) => {
                let parts = parts.into_iter().map(|part| match part {
                    ContentPart::Text { text } => Part::from_text(text),
                    ContentPart::ImageUrl { image_url } => Part::image_url(image_url.url),
                });
                parts.collect()
            }
        }
    }
}

impl ChatTool {
    fn read(self) -> ToolDeclaration {
        let Function {
            name,
            description,
            parameters,
        } = self.function;
        let declaration = ToolDeclaration::new(name, description);
        match parameters {
            Some(schema) => declaration.with_parameters(schema),
            None => declaration,
        }
    }
}

impl ChatFormat {
    fn read(self) -> ResponseFormat {
        match self {
            Self::Text => ResponseFormat::Text,
            Self::JsonObject => ResponseFormat::Json,
            Self::JsonSchema { json_schema } => ResponseFormat::JsonSchema {
                name: json_schema.name,
                schema: json_schema.schema,
                strict: json_schema.strict,
            },
        }
    }
}

fn tool_choice(choice: Value) -> Result<ToolChoice> {
    match choice.as_str() {
        Some("auto") => return Ok(ToolChoice::Auto),
        Some("none") => return Ok(ToolChoice::None),
        Some("required") => return Ok(ToolChoice::Required),
        _ => {}
    }
    let name = choice["function"]["name"].as_str();
    let name = name.ok_or_else(|| invalid(format!("`tool_choice` is {choice}")))?;
    Ok(ToolChoice::Tool(name.to_owned()))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidRequest, message)
}

/// Returns the body of a whole answer.
pub(crate) fn completion(id: &str, response: &ModelResponse) -> Value {
    let message = response.message();
    let calls = message.tool_calls().map(|call| {
        json!({
            "id": call.id, "type": "function",
            "function": { "name": call.name, "arguments": call.arguments.as_str() },
        })
    });
    let calls: Vec<_> = calls.collect();
    let mut answer = Map::new();
    answer.insert("role".into(), json!("assistant"));
    answer.insert("content".into(), json!(message.text()));
    if !calls.is_empty() {
        answer.insert("tool_calls".into(), calls.into());
    }
    json!({
        "id": id, "object": "chat.completion", "created": now(),
        "model": response.metadata().model,
        "choices": [{
            "index": 0, "message": answer,
            "finish_reason": response.finish_reason().to_string(),
        }],
        "usage": usage(response.usage()),
    })
}

/// Returns the time in seconds, as the protocol has it.
fn now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.unwrap_or_default().as_secs()
}

fn usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total(),
    })
}

/// The chunks of a streamed answer.
pub(crate) struct Chunks {
    id: String,
    model: String,
    created: u64,
    with_usage: bool,
    /// The calls so far, by the id that events have.
    calls: Vec<Arc<str>>,
}

impl Chunks {
    pub(crate) fn new(id: &str, request: &ChatRequest) -> Self {
        let options = request.stream_options.as_ref();
        Self {
            id: id.to_owned(),
            model: request.model.clone(),
            created: now(),
            with_usage: options.is_some_and(|options| options.include_usage),
            calls: Vec::new(),
        }
    }

    /// Returns the chunk for an event, if a client sees it.
    pub(crate) fn of(&mut self, event: &EventKind) -> Option<Value> {
        let delta = match event {
            EventKind::TextDelta { text, .. } => json!({ "content": text }),
            EventKind::ToolCallStart(start) => {
                self.calls.push(start.id.clone());
                json!({ "tool_calls": [{
                    "index": self.calls.len() - 1, "id": start.call_id, "type": "function",
                    "function": { "name": start.name, "arguments": "" },
                }] })
            }
            EventKind::ToolCallDelta { id, json: text } => {
                let index = self.calls.iter().position(|call| call == id)?;
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] })
            }
            _ => return None,
        };
        Some(self.chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }])))
    }

    /// Returns the last chunks.
    pub(crate) fn end(&self, response: &ModelResponse) -> Vec<Value> {
        let reason = response.finish_reason().to_string();
        let mut chunks =
            vec![self.chunk(json!([{ "index": 0, "delta": {}, "finish_reason": reason }]))];
        if self.with_usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = usage(response.usage());
            chunks.push(chunk);
        }
        chunks
    }

    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }
}
