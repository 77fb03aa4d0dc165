//! Google's Vertex AI: Gemini, and Claude by the Anthropic Messages protocol.
//!
//! ```text
//! VertexGemini<S>:    Service<ModelRequest, Response = ModelResponse>
//! VertexAnthropic<S>: Service<ModelRequest, Response = ModelResponse>
//!                 S:  Service<http::Request<RequestBody>, Response = http::Response<_>>
//! ```
//!
//! ```
//! # #[cfg(all(feature = "gemini", feature = "http-client"))]
//! # fn main() -> Result<(), tower_agent::BoxError> {
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_providers::vertex::VertexGemini;
//!
//! // A token of Google is valid for an hour: keep it until it expires.
//! async fn token() -> Result<String, BoxError> {
//!     Ok(std::fs::read_to_string("/run/secrets/google-token")?)
//! }
//!
//! let model = VertexGemini::builder()
//!     .project("my-project")
//!     .location("europe-west4")
//!     .model("gemini-2.5-flash")
//!     .api_key_with(token)
//!     .build()?;
//! let agent = Agent::builder(model).instructions("Answer in one line.").build()?;
//! # let _ = agent;
//! # Ok(())
//! # }
//! # #[cfg(not(all(feature = "gemini", feature = "http-client")))]
//! # fn main() {}
//! ```
//!
//! The project is that of the builder, or else of `GOOGLE_CLOUD_PROJECT`, and the location that of
//! the builder, or else of `GOOGLE_CLOUD_LOCATION`, or else `global`. The address follows from the
//! location: that of a region such as `europe-west4`, of the multi-regions `us` and `eu`, or of
//! `global`. A [`base_url`](crate::HttpModelBuilder::base_url) replaces it, up to `/v1`.
//!
//! The key is an access token of Google, sent as a bearer token. It is read from
//! `GOOGLE_OAUTH_ACCESS_TOKEN`; one that is to last longer than an hour is fetched for each call,
//! as above. An API key of Vertex goes into a header: `.header("x-goog-api-key", "..")`.
//!
//! Messages, settings and responses are those of [`gemini`](crate::gemini) and
//! [`anthropic`](crate::anthropic). Claude is named as in `claude-sonnet-4-5@20250929`; a Gemini
//! model by its name, or by a resource name such as `publishers/meta/models/..` or `endpoints/..`.

#[cfg(feature = "gemini")]
mod generate_content;
mod location;
#[cfg(feature = "anthropic")]
mod messages;
mod protocol;

#[cfg(feature = "gemini")]
pub use self::generate_content::VertexGenerateContent;
pub use self::location::VertexLocation;
#[cfg(feature = "anthropic")]
pub use self::messages::VertexMessages;
pub use self::protocol::OnVertex;
use crate::protocol::Protocol;
#[cfg(any(feature = "anthropic", feature = "gemini"))]
use crate::transport::HttpModel;
use crate::transport::HttpModelBuilder;

/// A Gemini model on Vertex AI, over an HTTP service `S`.
#[cfg(feature = "gemini")]
pub type VertexGemini<S> = HttpModel<VertexGenerateContent, S>;

/// Claude on Vertex AI, over an HTTP service `S`.
#[cfg(feature = "anthropic")]
pub type VertexAnthropic<S> = HttpModel<VertexMessages, S>;

/// For the protocols of Vertex AI.
impl<P: Protocol + AsMut<VertexLocation>> HttpModelBuilder<P> {
    /// Sets the project. Defaults to the environment variable `GOOGLE_CLOUD_PROJECT`.
    pub fn project(mut self, project: impl Into<String>) -> Self {
        self.protocol_mut().as_mut().project = Some(project.into());
        self
    }

    /// Sets the location: a region such as `europe-west4`, `us`, `eu` or `global`. Defaults to the
    /// environment variable `GOOGLE_CLOUD_LOCATION`, or else to `global`.
    pub fn location(mut self, location: impl Into<String>) -> Self {
        self.protocol_mut().as_mut().location = Some(location.into());
        self
    }
}
