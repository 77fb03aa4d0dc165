//! Ollama's own protocol.
//!
//! ```text
//! Ollama<S>: Service<ModelRequest, Response = ModelResponse>
//!        S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! Ollama also speaks the protocol of chat completions, but there it ignores the size of the
//! context and whether to think, without an error. Here it does not.
//!
//! ```
//! # #[cfg(feature = "http-client")]
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! use tower_agent::Agent;
//! use tower_agent_providers::ollama::Ollama;
//!
//! let model = Ollama::builder().model("qwen3").num_ctx(32_768).build()?;
//! let agent = Agent::builder(model).instructions("Answer in one line.").build()?;
//! # let _ = agent;
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "http-client"))]
//! # fn main() {}
//! ```
//!
//! The server is the one at the base URL or `OLLAMA_HOST`, which are read as Ollama itself reads
//! the variable, with or without `/api` or `/v1`, or else the one at `http://127.0.0.1:11434`. It
//! needs no key; that of `OLLAMA_API_KEY` is sent if there is one.
//!
//! # Requests
//!
//! - `temperature`, `top_p`, `max_tokens` (as `num_predict`), `stop` and `seed` are sent in
//!   `options`. [`extra`](tower_agent::Settings::extra), such as `keep_alive` and further
//!   `options`, is [merged](crate#extra-settings).
//! - `truncate: false` is sent. Otherwise Ollama drops the oldest messages of a conversation that
//!   does not fit into the context, without a word. As it is, the call fails with
//!   [`ContextLength`](tower_agent::ErrorKind::ContextLength): raise
//!   [`num_ctx`](crate::HttpModelBuilder::num_ctx), or shorten the conversation.
//! - [`Settings::reasoning_effort`](tower_agent::Settings::reasoning_effort) becomes `think`:
//!   `false` for `None`, else the level. Ollama has no level `Minimal`, which is an error. Models
//!   without levels take any as `true`; an [`Other`](tower_agent::model::ReasoningEffort::Other)
//!   can be `true` or `false` as well.
//! - A schema for the response becomes `format`. Its name is not sent.
//! - Instructions become a system message before the other messages. Texts of one message are
//!   joined.
//! - Images are sent inline, in base64; by URL or file id they are an error, as are audio and
//!   documents. Images in a tool result are sent with the result.
//! - A tool call goes back with the model's own arguments, byte for byte, and with its id, and its
//!   result with the name of the tool. Reasoning goes back to Ollama if it is Ollama's.
//! - `tool_choice` can be `Auto` or `None`, which sends no tools. Anything else is an error, as is
//!   `parallel_tool_calls: false`.
//! - The prompt cache needs no field.
//! - [`ProviderData`](tower_agent::message::ProviderData) under the key `ollama` is an object whose
//!   fields are added to the message, tool call or tool that carries it.
//!
//! # Responses
//!
//! Calls without an id, which older servers send, get one. The reason `stop` is sent beside calls
//! as well; the message decides then. See [`HttpModel`] for streams and errors.

mod chat;
mod operations;

pub use self::chat::{Chat, ChatDecoder};
use crate::transport::HttpModel;

/// A model served by Ollama, over an HTTP service `S`.
pub type Ollama<S> = HttpModel<Chat, S>;
