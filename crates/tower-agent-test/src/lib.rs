//! For tests with [tower-agent](tower_agent): a scripted model, runs that are [recorded](recording)
//! and replayed, assertions on what a run did, a log of calls, a probe for readiness and
//! concurrency, a check of the prompt's prefix.
//!
//! ```text
//! ScriptedModel: Service<ModelRequest>
//! Recording: Layer<S>                     where S: Service<R, Response = R::Response>
//! RecordLayer<R>, ProbeLayer: Layer<S>    where S: Service<R, Response = R::Response>
//! StablePrefixLayer: Layer<S>             where S: Service<ModelRequest>
//! ```
//!
//! ```
//! use serde_json::json;
//! use tower::{ServiceBuilder, ServiceExt};
//! use tower_agent::{Message, ModelRequest};
//! use tower_agent::callback::before_model;
//! use tower_agent_test::{ProbeLayer, RecordLayer, ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tower_agent::Result<()> {
//! let model = ScriptedModel::new([Turn::from_text("hi"), Turn::tool("add", json!({ "a": 1, "b": 2 }))]);
//! let record = RecordLayer::new();
//! let probe = ProbeLayer::new();
//! let stack = ServiceBuilder::new()
//!     .layer(before_model(|request| request.add_instructions("Be brief.")))
//!     .layer(record.clone())
//!     .layer(probe.clone())
//!     .service(model.clone());
//!
//! let request = ModelRequest::new([Message::user("hello")]);
//! assert_eq!(stack.clone().oneshot(request.clone()).await?.message().text(), "hi");
//! assert_eq!(stack.oneshot(request).await?.message().tool_calls().count(), 1);
//!
//! assert_eq!(record.requests()[0].instructions(), Some("Be brief."));
//! assert_eq!(probe.violations(), 0);
//! model.assert_done();
//! # Ok(())
//! # }
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests and examples may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod lock;
mod probe;
mod record;
pub mod recording;
mod script;
mod stable_prefix;
mod trajectory;
mod turn;
mod without_sink;

pub use self::probe::{Probe, ProbeLayer};
pub use self::record::{Ended, Record, RecordLayer};
pub use self::recording::{Recording, RecordingError};
pub use self::script::ScriptedModel;
pub use self::stable_prefix::{PrefixFault, StablePrefix, StablePrefixLayer};
pub use self::trajectory::{Step, Trajectory};
pub use self::turn::Turn;

/// Futures of the layers in this module.
pub mod future {
    pub use super::probe::ProbeFuture;
    pub use super::record::RecordFuture;
}

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
