//! Models reached over a network. Each module implements one protocol over any HTTP service.
//!
//! ```text
//! HttpModel<P, S>: Service<ModelRequest>  =  P: Protocol  over  S: Service<http::Request>
//! ```
//!
//! A [protocol] is code without I/O, so that a provider of your own is one type for its requests
//! and one for its responses: [how to write one](guide::write_a_protocol).
//!
//! | feature | adds |
//! |---|---|
//! | `anthropic` | [`anthropic`]: the Messages API |
//! | `bedrock` | [`bedrock`]: Converse, and Claude by the Messages API, with signatures of AWS; adds `anthropic` |
//! | `gemini` | [`gemini`]: `generateContent`, and Interactions |
//! | `ollama` | [`ollama`]: Ollama's own protocol |
//! | `openai` | [`openai`]: chat completions, and Responses |
//! | `anthropic` or `gemini` | [`vertex`]: Claude and Gemini on Vertex AI |
//! | `http-client` | [`HttpClient`]: hyper with rustls |
//! | `proxy` | proxies for it, those of the environment by default |
//! | `testing` | [`testing`]: recordings of HTTP calls, for tests without a network |
//!
//! Embeddings, lists of models and counts of tokens are [`operations`] of the same client:
//!
//! ```
//! # #[cfg(all(feature = "http-client", feature = "ollama"))]
//! # async fn embed() -> Result<(), tower_agent::BoxError> {
//! use tower::ServiceExt;
//! use tower_agent_providers::ollama::Ollama;
//! use tower_agent_providers::operations::EmbedRequest;
//!
//! let provider = Ollama::builder().model("nomic-embed-text").build()?;
//! let response = provider.operations().oneshot(EmbedRequest::new(["a cat"])).await?;
//! assert_eq!(response.embeddings.len(), 1);
//! # Ok(())
//! # }
//! ```
//!
//! # Extra settings
//!
//! The fields of [`extra`](tower_agent::Settings::extra) are merged with the body of a request, in
//! each protocol: objects field by field at any depth, the items of a list after ours. Any other
//! value replaces ours, and `null` removes it.
//!
//! ```
//! # use serde_json::json;
//! let mut settings = tower_agent::Settings::default();
//! settings.extra.insert("text".into(), json!({ "verbosity": "low" }));
//! ```
//!
//! A call whose extra fields would replace or remove what the agent has set fails with
//! [`InvalidRequest`](tower_agent::ErrorKind::InvalidRequest): its messages, its tools, and the
//! format of its answer.
//!
//! # Server tools
//!
//! A tool that the provider runs itself is one of the request's
//! [`server_tools`](tower_agent::Settings::server_tools), and stands beside the agent's:
//!
//! ```
//! use tower_agent::model::ServerTool;
//!
//! let mut settings = tower_agent::Settings::default();
//! settings.server_tools = vec![ServerTool::web_search()];
//! ```
//!
//! # Answers with a schema
//!
//! A [schema](tower_agent::model::ResponseFormat::JsonSchema), such as that of a typed run, reaches
//! the model in one of three ways:
//!
//! 1. As the response format, where the protocol, the model and the schema allow it.
//! 2. Otherwise as the tool `final_answer`, which the model must call. Only the protocol sees it:
//!    the response has its arguments as text, also while it is streamed.
//! 3. Otherwise in the instructions: where no call can be forced, as by many models of Converse,
//!    where the settings have a [tool choice](tower_agent::model::ToolChoice) other than
//!    `Required`, or where a tool has that name.
//!
//! [`Metadata`](tower_agent::message::Metadata::answer_tool) and the error of a wrong answer say
//! which of the last two it was, and why. [`AnswerMode`](tower_agent::agent::AnswerMode) chooses by
//! hand.
//!
//! # Options by protocol
//!
//! Settings and parts of a message that a protocol does not have are
//! [`InvalidRequest`](tower_agent::ErrorKind::InvalidRequest) errors before anything is sent. Where
//! a field is named, it is set in [`extra`](tower_agent::Settings::extra).
//!
//! | option | chat completions | Responses | Anthropic | Gemini | Interactions | Ollama | Converse |
//! |---|---|---|---|---|---|---|---|
//! | `temperature` | yes | yes | yes | yes | yes | yes | yes |
//! | `top_p` | yes | yes | yes | yes | yes | yes | yes |
//! | `max_tokens` | yes | yes | yes | yes | yes | yes | yes |
//! | `stop` | yes | no | yes | yes | yes | yes | yes |
//! | `seed` | yes | no | no | yes | yes | yes | no |
//! | `tool_choice`: `None` | yes | yes | yes | yes | yes | yes | no |
//! | `tool_choice`: `Required` or a tool | yes | yes | yes | yes | yes | no | yes |
//! | `parallel_tool_calls`: `false` | yes | yes | yes | no | no | no | no |
//! | `reasoning_effort` | yes | yes | yes | yes | yes | yes | yes |
//! | `response_format`: a schema | yes | yes | yes | yes | yes | yes | yes |
//! | `response_format`: `Json` | yes | yes | no | yes | yes | yes | no |
//! | `server_tools`: `WebSearch` | no | yes | yes | yes | yes | no | yes |
//! | `server_tools`: `WebFetch` | no | no | yes | yes | yes | no | no |
//! | `server_tools`: `CodeExecution` | no | yes | yes | yes | yes | no | yes |
//! | image: data | yes | yes | yes | yes | yes | yes | yes |
//! | image: URL | yes | yes | yes | yes | yes | no | no |
//! | audio: data | yes | yes | no | yes | yes | no | yes |
//! | document: data | yes | yes | yes | yes | yes | no | yes |
//! | document: file id | yes | yes | yes | yes | yes | no | no |
//! | several answers | `n` | no | no | `generationConfig.candidateCount` | no | no | no |
//! | log probabilities | `logprobs` | `top_logprobs` | no | `generationConfig.responseLogprobs` | no | `logprobs` | no |
//! | service tier | `service_tier` | `service_tier` | `service_tier` | no | no | no | `serviceTier` |

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests, examples and benches may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

#[cfg(feature = "anthropic")]
pub mod anthropic;
#[cfg(feature = "bedrock")]
pub mod bedrock;
#[cfg(feature = "gemini")]
pub mod gemini;
pub mod guide;
pub mod json;
#[cfg(feature = "ollama")]
pub mod ollama;
#[cfg(feature = "openai")]
pub mod openai;
pub mod operations;
pub mod protocol;
mod providers;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
#[cfg(feature = "anthropic")]
mod turns;
#[cfg(any(feature = "anthropic", feature = "gemini"))]
pub mod vertex;
mod word;

pub use self::protocol::Protocol;
pub use self::providers::{Providers, ProvidersError};
#[cfg(feature = "http-client")]
pub use self::transport::{
    HttpClient, HttpClientBuilder, HttpClientError, ResponseBody, TimeLimits,
};
pub use self::transport::{
    HttpModel, HttpModelBuilder, ModelBuildError, RequestBody, RequestHeaders,
};

/// Futures of the services in this crate's root.
pub mod future {
    #[cfg(feature = "http-client")]
    pub use crate::transport::client::HttpFuture;
    pub use crate::transport::model::ResponseFuture;
    pub use crate::transport::operations::OperationFuture;
}

/// The README's example, so that it compiles.
#[cfg(all(doctest, feature = "http-client", feature = "openai"))]
#[doc = include_str!("../README.md")]
struct Readme;
