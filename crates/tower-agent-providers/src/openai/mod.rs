//! The OpenAI chat-completions protocol.
//!
//! ```text
//! OpenAi<S>: Service<ModelRequest, Response = ModelResponse>
//!        S:  Service<http::Request<Full<Bytes>>, Response = http::Response<_>>
//! ```
//!
//! OpenAI and Azure speak it, and so do vLLM, Ollama, llama.cpp, Groq, OpenRouter and many more.
//! [`OpenAi`] stands on any HTTP service, so layers of tower and tower-http go under it, around
//! each HTTP call, as well as over it, around each model call:
//!
//! ```
//! # #[cfg(feature = "http-client")]
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! use tower::ServiceBuilder;
//! use tower_agent_providers::openai::{HttpClient, OpenAi};
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
//! # What is sent
//!
//! - Instructions become a system message before the others.
//! - `max_tokens` is sent as `max_completion_tokens` to the hosts of OpenAI and of Azure OpenAI,
//!   whose newer models refuse the old name, and as `max_tokens` to every other, since some, like
//!   Ollama, ignore the new one. To choose, leave it unset and put the field in
//!   [`extra`](tower_agent::Settings::extra).
//! - A tool message holds text alone in this protocol. Pictures in a tool's result follow in a
//!   user message after the results of the turn.
//! - Reasoning is not sent back.
//! - [`ProviderData`](tower_agent::message::ProviderData) under the key `openai` is an object whose fields are
//!   added to what the piece becomes: a message, a content part, a tool call, a tool. On a
//!   reasoning part they are added to its message, which is how a server gets its
//!   `reasoning_content` back; a [`Part::Provider`](tower_agent::Part::Provider) is a content part as it
//!   stands.
//! - [`extra`](tower_agent::Settings::extra) is merged last. A `null` in it takes the field away, such as
//!   `stream_options` for a server that refuses it.
//!
//! # What comes back
//!
//! With a [sink](tower_agent::ModelRequest::delta_sender) in the request the answer is asked for as a stream, and
//! without one as plain JSON; a server that sends the other of the two is understood all the same.
//! A refusal is text, and the answer's finish reason is then `refusal`. What a server adds to a tool
//! call as `extra_content` is kept and sent back.
//!
//! Errors have the server's message, its status, request id and rate limits, and the wait that it
//! asked for. They are not retried here: put a retry layer over the model, or under it.
//!
//! The body of an answer is read to its end, however long; a layer under the client can limit it.

mod builder;
mod client;
mod config;
mod connection;
mod decoder;
mod fault;
mod head;
#[cfg(feature = "http-client")]
mod http_client;
mod read;
mod secrets;
mod tool_calls;
mod wire;

pub use self::builder::{OpenAiBuildError, OpenAiBuilder};
pub use self::client::OpenAi;
#[cfg(feature = "http-client")]
pub use self::http_client::HttpClient;

/// The futures of this module.
pub mod future {
    #[doc(inline)]
    pub use super::client::ResponseFuture;
    #[cfg(feature = "http-client")]
    #[doc(inline)]
    pub use super::http_client::HttpFuture;
}

/// The key of this provider's data.
const PROVIDER: &str = "openai";
