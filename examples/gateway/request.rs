//! The request of OpenAI's chat completions, as a server reads it.
//!
//! A field that is not here is an error that names it, at any depth: it would be lost without a
//! word.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_json::{Value, json};
use tower_agent::message::{Media, MediaSource, ToolCall, ToolResult};
use tower_agent::model::{ReasoningEffort, ResponseFormat, ToolChoice};
use tower_agent::serve::is_public_url;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Message, ModelRequest, Part, Role, Settings};

/// The provider whose data the fields are that only this protocol has.
const PROVIDER: &str = "openai";

/// The reason why a request is refused, and the place.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) path: String,
    pub(crate) message: String,
}

impl Refusal {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

/// The form of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Whole,
    Stream {
        /// The client wants to know the tokens.
        with_usage: bool,
    },
}

/// The body of a request.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatRequest {
    model: String,
    messages: Vec<ChatMessage>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    tools: Option<Vec<ChatTool>>,
    tool_choice: Option<ChatChoice>,
    parallel_tool_calls: Option<bool>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    #[serde(alias = "max_completion_tokens")]
    max_tokens: Option<u32>,
    stop: Option<OneOrMore>,
    seed: Option<u64>,
    reasoning_effort: Option<String>,
    response_format: Option<ChatFormat>,
    frequency_penalty: Option<Value>,
    presence_penalty: Option<Value>,
    logit_bias: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// One struct for all roles: an enum would lose the place of what is wrong.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatMessage {
    role: ChatRole,
    content: Option<Content>,
    tool_calls: Option<Vec<ChatCall>>,
    tool_call_id: Option<String>,
    reasoning_content: Option<String>,
    refusal: Option<String>,
    // The objects of OpenAI's client have these as well, and send them back.
    #[serde(rename = "annotations")]
    _annotations: Option<Nothing>,
    #[serde(rename = "audio")]
    _audio: Option<Nothing>,
    #[serde(rename = "function_call")]
    _function_call: Option<Nothing>,
    /// The content as the client has made it.
    #[serde(rename = "parsed")]
    _parsed: Option<IgnoredAny>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ChatRole {
    #[serde(alias = "developer")]
    System,
    User,
    Assistant,
    Tool,
}

#[derive(Debug)]
enum Content {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ContentPart {
    r#type: PartKind,
    text: Option<String>,
    image_url: Option<ImageUrl>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    Text,
    ImageUrl,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageUrl {
    url: String,
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatCall {
    id: String,
    #[serde(rename = "type")]
    _type: Option<FunctionKind>,
    function: CalledFunction,
    /// The place in a stream, which the client's own object of a streamed answer has.
    #[serde(rename = "index")]
    _index: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CalledFunction {
    name: String,
    arguments: String,
    /// The arguments as the client has made them.
    #[serde(rename = "parsed_arguments")]
    _parsed: Option<IgnoredAny>,
}

/// The only kind of tool.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FunctionKind {
    Function,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatTool {
    #[serde(rename = "type")]
    _type: Option<FunctionKind>,
    function: Function,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
    strict: Option<bool>,
}

#[derive(Debug)]
struct ChatChoice(ToolChoice);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedChoice {
    #[serde(rename = "type")]
    _type: FunctionKind,
    function: Named,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatFormat {
    r#type: FormatKind,
    json_schema: Option<JsonSchema>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    Text,
    JsonObject,
    JsonSchema,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonSchema {
    name: String,
    #[serde(default)]
    schema: Value,
    strict: Option<bool>,
}

/// A field that may be there, as long as it says nothing.
#[derive(Debug)]
struct Nothing;

impl<'de> Deserialize<'de> for Nothing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Array(list) if list.is_empty() => Ok(Self),
            _ => Err(D::Error::custom("it would be lost: omit it")),
        }
    }
}

/// Reads a text or a list. An untagged enum would not say what is wrong in the list.
impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;

        impl<'de> Visitor<'de> for TextOrParts {
            type Value = Content;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of parts")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Content, E> {
                Ok(Content::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Content, A::Error> {
                let parts = SeqAccessDeserializer::new(parts);
                Vec::deserialize(parts).map(Content::Parts)
            }
        }

        deserializer.deserialize_any(TextOrParts)
    }
}

/// Reads a word or an object, for the same reason.
impl<'de> Deserialize<'de> for ChatChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrTool;

        impl<'de> Visitor<'de> for WordOrTool {
            type Value = ChatChoice;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto`, `none`, `required` or a function")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<ChatChoice, E> {
                Ok(ChatChoice(match word {
                    "auto" => ToolChoice::Auto,
                    "none" => ToolChoice::None,
                    "required" => ToolChoice::Required,
                    _ => return Err(E::invalid_value(Unexpected::Str(word), &self)),
                }))
            }

            fn visit_map<A: MapAccess<'de>>(self, tool: A) -> Result<ChatChoice, A::Error> {
                let choice = NamedChoice::deserialize(MapAccessDeserializer::new(tool))?;
                Ok(ChatChoice(ToolChoice::Tool(choice.function.name)))
            }
        }

        deserializer.deserialize_any(WordOrTool)
    }
}

impl ChatRequest {
    /// Reads the body of a request.
    pub(crate) fn from_json(body: &[u8]) -> Result<Self, Refusal> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let request = serde_path_to_error::deserialize(&mut json).map_err(|error| {
            let path = error.path().to_string();
            // A dot alone is the whole body.
            let path = path.trim_matches('.');
            Refusal::new(path, error.into_inner().to_string())
        })?;
        json.end()
            .map_err(|error| Refusal::new("", error.to_string()))?;
        Ok(request)
    }

    /// Returns the form of the answer.
    pub(crate) fn form(&self) -> Form {
        if !self.stream.unwrap_or_default() {
            return Form::Whole;
        }
        let options = self.stream_options.as_ref();
        Form::Stream {
            with_usage: options.is_some_and(|options| options.include_usage.unwrap_or_default()),
        }
    }

    /// Returns the call of the model.
    pub(crate) fn read(self) -> Result<ModelRequest, Refusal> {
        let mut messages = Vec::new();
        for (index, message) in self.messages.into_iter().enumerate() {
            let message = message.read(index, &messages)?;
            messages.push(message);
        }
        // Those at the beginning are the system prompt, which every protocol has.
        let first = messages
            .iter()
            .position(|message| message.role() != Role::System);
        let rest = messages.split_off(first.unwrap_or(messages.len()));
        let prompts: Vec<_> = messages.iter().map(Message::text).collect();
        let tools = self.tools.unwrap_or_default().into_iter();
        let tools = tools.map(|tool| Arc::new(tool.function.read()));
        let mut settings = Settings::default();
        settings.model = Some(self.model);
        settings.temperature = self.temperature;
        settings.top_p = self.top_p;
        settings.max_tokens = self.max_tokens;
        settings.seed = self.seed;
        settings.parallel_tool_calls = self.parallel_tool_calls;
        settings.reasoning_effort = self.reasoning_effort.map(effort);
        settings.tool_choice = self.tool_choice.map(|ChatChoice(choice)| choice);
        settings.response_format = self.response_format.map(ChatFormat::read).transpose()?;
        settings.stop = match self.stop {
            Some(OneOrMore::One(text)) => vec![text],
            Some(OneOrMore::More(texts)) => texts,
            None => Vec::new(),
        };
        let others = [
            ("frequency_penalty", self.frequency_penalty),
            ("presence_penalty", self.presence_penalty),
            ("logit_bias", self.logit_bias),
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

fn effort(word: String) -> ReasoningEffort {
    match &*word {
        "none" => ReasoningEffort::None,
        "minimal" => ReasoningEffort::Minimal,
        "low" => ReasoningEffort::Low,
        "medium" => ReasoningEffort::Medium,
        "high" => ReasoningEffort::High,
        _ => ReasoningEffort::Other(Cow::Owned(word)),
    }
}

impl ChatMessage {
    fn read(self, index: usize, before: &[Message]) -> Result<Message, Refusal> {
        let at = |field: &str| format!("messages[{index}].{field}");
        let is_assistant = self.role == ChatRole::Assistant;
        let is_tool = self.role == ChatRole::Tool;
        let fields = [
            ("tool_calls", self.tool_calls.is_some(), is_assistant),
            (
                "reasoning_content",
                self.reasoning_content.is_some(),
                is_assistant,
            ),
            ("refusal", self.refusal.is_some(), is_assistant),
            ("tool_call_id", self.tool_call_id.is_some(), is_tool),
        ];
        for (field, is_set, has_place) in fields {
            if is_set && !has_place {
                return Err(Refusal::new(at(field), "no message of this role has it"));
            }
        }
        let content = match self.content {
            Some(content) => content.read(&at("content"))?,
            None if is_assistant => Vec::new(),
            None => return Err(Refusal::new(at("content"), "it is missing")),
        };
        Ok(match self.role {
            ChatRole::System => Message::new(Role::System, content),
            ChatRole::User => Message::new(Role::User, content),
            ChatRole::Assistant => {
                let thoughts = self.reasoning_content.map(reasoning);
                let refusal = self.refusal.map(Part::from_text);
                let calls = self.tool_calls.unwrap_or_default().into_iter();
                let calls = calls.map(|ChatCall { id, function, .. }| {
                    Part::from(ToolCall::from_text(id, function.name, function.arguments))
                });
                let parts = thoughts.into_iter().chain(content).chain(refusal);
                Message::new(Role::Assistant, parts.chain(calls))
            }
            ChatRole::Tool => {
                let id = self.tool_call_id.unwrap_or_default();
                let mut calls = before.iter().rev().flat_map(Message::tool_calls);
                let call = calls.find(|call| *call.id == *id).ok_or_else(|| {
                    let why = format!("no call before has the id `{id}`");
                    Refusal::new(at("tool_call_id"), why)
                })?;
                Message::tool(ToolResult::new(call, content))
            }
        })
    }
}

/// Returns what a model of this protocol has thought: its server may want it back.
fn reasoning(text: String) -> Part {
    let mut part = Part::reasoning(text);
    if let Part::Reasoning(thought) = &mut part {
        thought.provider.set(PROVIDER, json!({}));
    }
    part
}

impl Content {
    fn read(self, path: &str) -> Result<Vec<Part>, Refusal> {
        let parts = match self {
            Self::Text(text) => return Ok(vec![Part::from_text(text)]),
            Self::Parts(parts) => parts.into_iter().enumerate(),
        };
        parts
            .map(
                |(index, part)| match (part.r#type, part.text, part.image_url) {
                    (PartKind::Text, Some(text), None) => Ok(Part::from_text(text)),
                    (PartKind::ImageUrl, None, Some(image)) => {
                        image.read(&format!("{path}[{index}].image_url"))
                    }
                    (kind, ..) => {
                        let why =
                            format!("a part of the type {kind:?} has just the field of its type");
                        Err(Refusal::new(format!("{path}[{index}]"), why))
                    }
                },
            )
            .collect()
    }
}

impl ImageUrl {
    fn read(self, path: &str) -> Result<Part, Refusal> {
        // The provider fetches it, perhaps from this network, or with the key that all tenants
        // share.
        if !self.url.starts_with("data:image/") && !is_public_url(&self.url) {
            let why = "it is neither a public `https` URL nor an image as `data:image/..`";
            return Err(Refusal::new(format!("{path}.url"), why));
        }
        let mut image = Media::new(MediaSource::url(self.url.clone()));
        if let Some(detail) = self.detail {
            // In the place of the field that the protocol would have without it.
            let url = json!({ "url": self.url, "detail": detail });
            image.provider.set(PROVIDER, json!({ "image_url": url }));
        }
        Ok(Part::image(image))
    }
}

impl Function {
    fn read(self) -> ToolDeclaration {
        let description = self.description.unwrap_or_default();
        let mut declaration = ToolDeclaration::new(self.name, description);
        if let Some(schema) = self.parameters {
            declaration = declaration.with_parameters(schema);
        }
        if let Some(strict) = self.strict {
            // In the place of the field that the protocol would have without it.
            let function = json!({
                "name": declaration.name(), "description": declaration.description(),
                "parameters": declaration.parameters(), "strict": strict,
            });
            let data = declaration.provider_mut();
            data.set(PROVIDER, json!({ "function": function }));
        }
        declaration
    }
}

impl ChatFormat {
    fn read(self) -> Result<ResponseFormat, Refusal> {
        Ok(match (self.r#type, self.json_schema) {
            (FormatKind::Text, None) => ResponseFormat::Text,
            (FormatKind::JsonObject, None) => ResponseFormat::Json,
            (FormatKind::JsonSchema, Some(schema)) => ResponseFormat::JsonSchema {
                name: schema.name,
                schema: schema.schema,
                strict: schema.strict.unwrap_or_default(),
            },
            _ => {
                let why = "it belongs to the type `json_schema`, which needs it";
                return Err(Refusal::new("response_format.json_schema", why));
            }
        })
    }
}
