//! Recordings of HTTP calls: a test that runs without a network and without keys.
//!
//! ```text
//! HttpRecordingLayer: Layer<S>
//! HttpRecorded<S>:    Service<http::Request<RequestBody>>
//! ```
//!
//! A [`Recording`](tower_agent_test::Recording) around the HTTP client of a model keeps each
//! response as it came: its status, its headers, and its body in the pieces in which it arrived. A
//! replay therefore also tests the protocol, where a recording of model calls does not.
//!
//! ```
//! # #[cfg(all(feature = "http-client", feature = "openai"))] {
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_providers::openai::OpenAi;
//! use tower_agent_providers::testing::HttpRecordingLayer;
//! use tower_agent_providers::HttpClient;
//! use tower::Layer;
//! use tower_agent_test::{Recording, RecordingError};
//!
//! async fn the_sky_is_blue() -> Result<(), BoxError> {
//!     let path = "tests/recordings/the_sky_is_blue.json";
//!     let recording = match std::env::var_os("RECORD") {
//!         Some(_) => Recording::record(path),
//!         None => Recording::replay(path)?,
//!     };
//!     let http = HttpRecordingLayer::new(recording.clone()).layer(HttpClient::new()?);
//!     let model = OpenAi::builder().model("gpt-4o-mini").build_with(http)?;
//!     let agent = Agent::builder(model).build()?;
//!
//!     assert!(agent.run("What colour is the sky?").await?.text().contains("blue"));
//!     recording.finish()?;
//!     Ok(())
//! }
//! # }
//! ```
//!
//! Calls are matched by their method, path, query and body, and not by their host and headers. A
//! body that differs fails with the first difference, as
//! [recordings](tower_agent_test::recording) of other calls do. A server that gives tool calls
//! no ids has them numbered by the run: for a stream of such a server, set the [run's
//! id](tower_agent::AgentRequest::with_run_id).
//!
//! # Secrets
//!
//! Headers of requests are not written. Keys and other secrets among them, in the query and in
//! fields of the body that are named as secrets, such as `authorization` and `api_key`, are written
//! as `[hidden]` wherever they appear in the request and the response, even across pieces of a
//! body, and so are the cookies that a server sets.
//!
//! The texts of users and models are written as they are, unless the layer has a
//! [redaction](HttpRecordingLayer::redact). One that the agent has hides nothing here: it is
//! outside the HTTP client.

mod body;
mod exchange;
mod hiding;
mod layer;
mod outcome;
mod scrub;
mod service;
mod text;

pub use self::body::RecordedBody;
pub use self::layer::HttpRecordingLayer;
pub use self::service::HttpRecorded;

/// Futures of the services in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}
