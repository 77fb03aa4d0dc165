//! Recordings: a run against a real model, replayed without it.
//!
//! ```text
//! Recording:   Layer<S>
//! Recorded<S>: Service<R>    where S: Service<R, Response = R::Response>, R: Recordable
//! ```
//!
//! A test records its run once and then replays it, without a network and without keys. The run is
//! the same code both times:
//!
//! ```
//! use tower_agent::{Agent, BoxError, Tool};
//! use serde_json::json;
//! use tower_agent_test::recording::{Recording, RecordingError};
//! use tower_agent_test::{ScriptedModel, Trajectory, Turn};
//!
//! async fn adds_two_numbers(recording: Recording) -> Result<(), BoxError> {
//!     // In a test of yours, a provider.
//!     let model = match recording.is_replay() {
//!         true => ScriptedModel::new([]),
//!         false => ScriptedModel::new([Turn::tool("add", json!([1, 2])), Turn::from_text("3")]),
//!     };
//!     let agent = Agent::builder(model)
//!         .tool(Tool::function("add", "Adds.", |(a, b): (f64, f64)| a + b))
//!         .model_layer(recording.clone())
//!         .tool_layer(recording.clone())
//!         .build()?;
//!
//!     let response = agent.run("What is 1 + 2?").await?;
//!     assert_eq!(response.text(), "3");
//!     Trajectory::of(&response).assert_called("add");
//!     recording.finish()?;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let path = std::env::temp_dir().join(format!("adds-{}.json", std::process::id()));
//! adds_two_numbers(Recording::record(&path)).await?; // once
//! adds_two_numbers(Recording::replay(&path)?).await?; // from then on
//! # std::fs::remove_file(path)?;
//! # Ok(())
//! # }
//! ```
//!
//! A variable of the environment can choose: `if env::var_os("RECORD").is_some() {
//! Recording::record(path) } else { Recording::replay(path)? }`.
//!
//! # What a replay checks
//!
//! Calls are matched by what they are: their kind, the agents and tool calls that contain them, and
//! their request. Neither the order nor the time of parallel calls matters. A call whose request
//! differs, and a call that is not recorded, abort the run with an error that says which call it is
//! and shows the first difference:
//!
//! ```text
//! model call at `sums` differs from call 3 of the recording `sums.json`
//!   messages[0].parts[0].text
//!     recorded: What is 1 + 2?
//!     received: What is 2 + 2?
//! ```
//!
//! [`finish`](Recording::finish) fails if a call differed, even if a callback has hidden the error,
//! and if a recorded call was not made. A recording that is compared with itself proves nothing: a
//! test still asserts what the run should do.
//!
//! # What is recorded
//!
//! - The response, or the error with its kind, message, wait, metadata and interrupts, without its
//!   source.
//! - The deltas of a streamed call, attempt by attempt, as they pass the layer. A call that was
//!   recorded without a stream can be replayed with one, part by part, and the other way round.
//! - That a call was dropped: the replay streams what was streamed, and then waits to be dropped.
//!
//! What is inside the layer is not called: a retry inside it is part of one call, and one outside
//! repeats its calls. An agent used as a tool is part of the tool call, if that is recorded; a
//! replay does not count the tokens that it used. Time is not recorded.
//!
//! A replayed tool only answers: state that it sets and events that it emits are not recorded.
//! Record the tools that reach outside, each with [`Tool::layer`](tower_agent::Tool::layer), and
//! let a replay run those that change the run.
//!
//! The file is JSON, with its calls in the order in which they began.
//!
//! # Secrets
//!
//! Model and tool calls contain no keys. With a `Redact`, pass it to
//! [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) or
//! [`callbacks`](tower_agent::AgentBuilder::callbacks) first, and then the recording to
//! `model_layer` and `tool_layer`, as above. It then stands between the places where the redaction
//! acts, so that the file contains placeholders only, and tools are replayed with them. A recording
//! in any other place would contain what the redaction hides: the call fails, and nothing is
//! written.
//!
//! The user's own words are hidden only with `redact_input`.
//!
//! # HTTP
//!
//! The feature `testing` of `tower-agent-providers` puts a recording under a model, around its HTTP
//! client.

mod call;
mod difference;
mod error;
mod file;
mod recordable;
mod recorded;
#[expect(clippy::module_inception, reason = "a type is in the file of its name")]
mod recording;
mod tape;

pub use self::call::{RecordedCall, Site};
pub use self::difference::Difference;
pub use self::error::RecordingError;
pub use self::recordable::Recordable;
pub use self::recorded::Recorded;
pub use self::recording::{CallStart, OpenCall, Recording};

/// Futures of the services in this module.
pub mod future {
    pub use super::recorded::ResponseFuture;
}
