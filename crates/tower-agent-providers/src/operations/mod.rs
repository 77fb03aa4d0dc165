//! Operations of providers beside answering: embeddings, lists of models, counts of tokens.
//!
//! ```text
//! HttpOperations<P, S>: Service<R, Response = R::Response>
//!                   R:  Request               EmbedRequest, ListModels, CountTokens
//!                   P:  Operation<R>          how the provider has it
//!                   S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! The requests are calls like those of models, so that callbacks, wraps and layers that are
//! generic over calls fit around them, such as the retry and the timeout of
//! `tower-agent-middleware`, and so do those of tower. They go over the same transport as the
//! model: address, key or signature, headers, errors, limits.
//!
//! ```
//! # #[cfg(all(feature = "http-client", feature = "openai"))]
//! # async fn search() -> Result<(), tower_agent::BoxError> {
//! use std::time::Duration;
//!
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_agent_providers::openai::OpenAi;
//! use tower_agent_providers::operations::EmbedRequest;
//!
//! let provider = OpenAi::builder().model("text-embedding-3-small").build()?;
//! let embed = ServiceBuilder::new()
//!     .timeout(Duration::from_secs(30))
//!     .service(provider.operations());
//! let response = embed.oneshot(EmbedRequest::new(["a cat", "a dog"])).await?;
//! assert_eq!(response.embeddings.len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! | | [`EmbedRequest`] | [`ListModels`] | [`CountTokens`] |
//! |---|---|---|---|
//! | [`anthropic::Messages`](crate::anthropic::Messages) | no | yes | yes |
//! | [`bedrock::Converse`](crate::bedrock::Converse) | no | no | yes |
//! | [`gemini::GenerateContent`](crate::gemini::GenerateContent) | yes | yes | yes |
//! | [`ollama::Chat`](crate::ollama::Chat) | yes | yes | no |
//! | [`openai::Chat`](crate::openai::Chat) | yes | yes | no |
//! | [`openai::Responses`](crate::openai::Responses) | no | yes | yes |
//! | [`vertex::VertexGenerateContent`](crate::vertex::VertexGenerateContent) | no | no | yes |
//! | [`vertex::VertexMessages`](crate::vertex::VertexMessages) | no | no | yes |
//!
//! A run counts what its own models and tools use, so the tokens of an embedding are not part of
//! its [usage](tower_agent::RunContext::usage) by themselves: they are the
//! [usage](EmbedResponse::usage) of the response. The budget of `tower-agent-middleware` neither
//! limits nor charges them, since it reserves by what a model may answer; its retries and timeouts
//! fit.

mod count_tokens;
mod embed;
mod list_models;
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
mod prompt;

pub use self::count_tokens::{CountTokens, TokenCount};
pub use self::embed::{EmbedRequest, EmbedResponse};
#[cfg(any(feature = "gemini", feature = "ollama", feature = "openai"))]
pub(crate) use self::embed::{check_embed, embeddings_of};
pub use self::list_models::{ListModels, ListedModel, ModelList};
#[cfg(feature = "gemini")]
pub(crate) use self::prompt::body_of;
#[cfg(any(feature = "anthropic", feature = "gemini", feature = "openai"))]
pub(crate) use self::prompt::{count_of, prompt_of};
pub use crate::transport::HttpOperations;
