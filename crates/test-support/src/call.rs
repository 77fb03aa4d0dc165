//! A uniform interface to every kind of call, for generic tests.

use std::fmt::Debug;

use serde_json::{Value, json};
use tower_agent::call::{CallKind, Origin};
use tower_agent::message::{Messages, ToolCall};
use tower_agent::{
    AgentRequest, AgentResponse, Message, ModelRequest, ModelResponse, Request, RunContext,
    ToolRequest, ToolResponse,
};

/// Creates requests and responses of one call, and reads them.
pub trait Call: Request<Response: Debug> + Debug {
    fn request(context: RunContext) -> Self;
    /// Changes the request in a way that the service can see.
    fn note(&mut self, word: &str);
    /// Returns the notes, joined.
    fn noted(&self) -> String;
    fn response(text: &str) -> Self::Response;
    fn text(response: &Self::Response) -> String;
    fn origin(response: &Self::Response) -> Origin;
}

fn joined(messages: &Messages) -> String {
    messages.iter().map(Message::text).collect()
}

impl Call for AgentRequest {
    fn request(context: RunContext) -> Self {
        Self::conversation([]).with_context(context)
    }

    fn note(&mut self, word: &str) {
        self.messages_mut().push(Message::user(word));
    }

    fn noted(&self) -> String {
        joined(self.messages())
    }

    fn response(text: &str) -> AgentResponse {
        AgentResponse::new([Message::assistant(text)])
    }

    fn text(response: &AgentResponse) -> String {
        response.text()
    }

    fn origin(response: &AgentResponse) -> Origin {
        response.origin()
    }
}

impl Call for ModelRequest {
    fn request(context: RunContext) -> Self {
        Self::new([]).with_context(context)
    }

    fn note(&mut self, word: &str) {
        self.messages_mut().push(Message::user(word));
    }

    fn noted(&self) -> String {
        joined(self.messages())
    }

    fn response(text: &str) -> ModelResponse {
        ModelResponse::from_text(text)
    }

    fn text(response: &ModelResponse) -> String {
        response.message().text()
    }

    fn origin(response: &ModelResponse) -> Origin {
        response.origin()
    }
}

impl Call for ToolRequest {
    fn request(context: RunContext) -> Self {
        Self::new(ToolCall::new("call_1", "tool", json!(""))).with_context(context)
    }

    fn note(&mut self, word: &str) {
        *self.arguments_mut() = Value::String(self.noted() + word);
    }

    fn noted(&self) -> String {
        self.arguments().as_str().unwrap().to_owned()
    }

    fn response(text: &str) -> ToolResponse {
        ToolResponse::new(text)
    }

    fn text(response: &ToolResponse) -> String {
        response.value().as_str().unwrap().to_owned()
    }

    fn origin(response: &ToolResponse) -> Origin {
        response.origin()
    }
}

/// A call that the crate does not define.
#[derive(Clone, Debug, Default)]
pub struct Embed {
    pub text: String,
    pub context: RunContext,
}

#[derive(Clone, Debug)]
pub struct Embedding {
    pub text: String,
    pub origin: Origin,
}

impl Request for Embed {
    type Response = Embedding;
    const CALL: CallKind = CallKind::Other("embed");

    fn context(&self) -> &RunContext {
        &self.context
    }

    fn mark(&self, response: &mut Embedding, _: Option<&Embedding>, origin: Origin) {
        if origin != Origin::Service {
            response.origin = origin;
        }
    }
}

impl Call for Embed {
    fn request(context: RunContext) -> Self {
        Self {
            text: String::new(),
            context,
        }
    }

    fn note(&mut self, word: &str) {
        self.text.push_str(word);
    }

    fn noted(&self) -> String {
        self.text.clone()
    }

    fn response(text: &str) -> Embedding {
        Embedding {
            text: text.to_owned(),
            origin: Origin::Service,
        }
    }

    fn text(response: &Embedding) -> String {
        response.text.clone()
    }

    fn origin(response: &Embedding) -> Origin {
        response.origin
    }
}
