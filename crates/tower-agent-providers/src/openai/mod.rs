//! The OpenAI protocols: chat completions, and Responses.
//!
//! ```text
//! OpenAi<S>:          Service<ModelRequest, Response = ModelResponse>
//! OpenAiResponses<S>: Service<ModelRequest, Response = ModelResponse>
//!                 S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! Used by OpenAI, Azure, vLLM, Ollama, llama.cpp, Groq, OpenRouter and many others. [`OpenAi`]
//! works over any HTTP service, so layers of tower and tower-http can wrap each HTTP call as well
//! as each model call:
//!
//! ```
//! # #[cfg(feature = "http-client")]
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! use tower::ServiceBuilder;
//! use tower_agent_providers::HttpClient;
//! use tower_agent_providers::openai::OpenAi;
//!
//! let http = ServiceBuilder::new().concurrency_limit(8).service(HttpClient::new()?);
//! let model = OpenAi::builder()
//!     .base_url("http://127.0.0.1:11434/v1")
//!     .model("llama3.2")
//!     .build_with(http)?;
//! # let _ = model;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "http-client"))]
//! # fn main() {}
//! ```
//!
//! # Chat completions
//!
//! - Instructions become a system message before the other messages.
//! - Servers differ in what they accept: whether and where a model's reasoning is sent back, the
//!   name of `max_tokens`, schemas, tool choices. The [`Dialect`] of a call is found in a
//!   [table](Dialects) by host and model, to which
//!   [`dialects`](crate::HttpModelBuilder::dialects) adds. What servers send differently is read in
//!   any form.
//! - Where a schema is not accepted as the response format, a [tool](crate#answers-with-a-schema)
//!   gives the answer, or the schema stands in the instructions.
//! - Images are sent by URL or inline, audio inline as WAV or MP3, documents inline or as the id of
//!   an uploaded file. Any other source is an `InvalidRequest` error that names the part.
//! - In this protocol a tool message contains only text. Images, audio and documents in a tool
//!   result follow in a user message after the results of the turn.
//! - A call's id goes back as it came. An id of another provider is shortened and changed, in the
//!   call and in its result alike, if it is longer than 40 characters or contains others than
//!   letters, digits, `_` and `-`, since some servers reject it.
//! - [`ProviderData`](tower_agent::message::ProviderData) under the key `openai` is an object whose
//!   fields are added to the message, content part, tool call or tool that carries it. On a
//!   reasoning part they are added to its message. A
//!   [`Part::Provider`](tower_agent::Part::Provider) is sent unchanged as a content part.
//! - [`extra`](tower_agent::Settings::extra) is [merged](crate#extra-settings). A `null` in it
//!   removes the field, such as `stream_options` for a server that rejects it.
//!
//! A call of the model that the server rejected, as Groq does if it does not match the tool's
//! schema, is returned as the model made it, so that the agent tells the model what is wrong.
//!
//! What a response says beside its message is the field `response` of the message's data and is not
//! sent back: `annotations`, `citations`, `search_results`, `executed_tools`, `logprobs`, and the
//! further `choices`, as they came. Images that the model makes are parts of its message, which go
//! back in it, and so is its audio, which goes back as its transcript: the text of the message.
//!
//! Data that only the server can read goes back to it alone, by its
//! [issuer](crate::HttpModelBuilder::issuer), in the fields in which it came: `reasoning_details`,
//! `thinking_blocks`, `reasoning_opaque`, `extra_content` and the like.
//!
//! A refusal is returned as text with the finish reason
//! [`Refusal`](tower_agent::model::FinishReason::Refusal). A tool call's `extra_content` is kept
//! and sent back. See [`HttpModel`] for streams and errors.
//!
//! # Responses
//!
//! [`OpenAiResponses`] speaks the protocol of OpenAI Responses, which is also that of Open
//! Responses: OpenRouter, Ollama, LM Studio, vLLM and others.
//!
//! - Nothing is kept by the server: `store` is `false`, and each request says all. Reasoning is
//!   returned encrypted and sent back in its place, beside its calls. Models of OpenAI that do not
//!   reason reject a request for it, so it is not made for names that start with `gpt-3`, `gpt-4`
//!   or `chatgpt-`, or contain `-chat`;
//!   [`encrypted_reasoning`](crate::HttpModelBuilder::encrypted_reasoning) decides for other names.
//! - Instructions are sent as `instructions`, and images, audio and documents in a tool result with
//!   the result.
//! - A tool is `strict` if its schema is closed at every level, and otherwise explicitly not.
//!   [`ProviderData`](tower_agent::message::ProviderData) under the key `openai_responses` is an
//!   object whose fields are added to the tool, message or content part that carries it. If it has
//!   a `type`, it is the whole tool, such as `{"type": "web_search"}`.
//! - On what the model said, this data is what its items contain besides text: ids, `phase`,
//!   annotations, encrypted reasoning. It is sent back untouched, as are items of other types, each
//!   of which is a [`Part::Provider`](tower_agent::Part::Provider). Another server of this
//!   protocol, or another account of OpenAI, is not sent what it could not read:
//!   [`issuer`](crate::HttpModelBuilder::issuer).
//! - A call's id is sent as in chat completions, but may have 64 characters.
//! - Summaries of the reasoning are returned if they are requested, in
//!   [`extra`](tower_agent::Settings::extra): `{"reasoning": {"summary": "auto"}}`.
//! - `stop` and `seed` are `InvalidRequest` errors, since the protocol does not have them.

mod chat;
mod media;
mod operations;
mod responses;
mod settings;

pub use self::chat::{
    Chat, ChatDecoder, Dialect, Dialects, LimitField, ReasoningField, SchemaSupport,
};
pub use self::responses::{Responses, ResponsesDecoder};
use crate::transport::HttpModel;

/// A model reached by the OpenAI chat-completions protocol, over an HTTP service `S`.
pub type OpenAi<S> = HttpModel<Chat, S>;

/// A model reached by the protocol of OpenAI Responses and Open Responses, over an HTTP service
/// `S`.
pub type OpenAiResponses<S> = HttpModel<Responses, S>;
