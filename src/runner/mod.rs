//! The agent loop, and the builder that composes it.
//!
//! ```text
//! Agent: Service<AgentRequest>
//! ```
//!
//! The loop asks the model, runs the tools it asks for, tells it their answers, and does so until
//! it asks for none. What to do next is a pure function of the transcript; what touches the world
//! is a model or a tool call, each through its own stack of callbacks and layers.

mod agent;
mod builder;
mod explain;
mod meter;
mod progress;
mod run;
mod semantics;
mod stack;
mod step;
mod tools;

pub use self::agent::Agent;
pub use self::builder::{AgentBuilder, BuildError};
pub use self::explain::Explanation;
pub use self::progress::Progress;
pub use self::semantics::{
    AfterAgentRespond, AfterModelRespond, AnsweredToolCalls, AtLimit, RunSemantics, Semantics,
    ToolCalls, ToolFailure, UnknownTool,
};
pub use self::stack::Seam;

/// Futures of the services in this module.
pub mod future {
    pub use super::agent::ResponseFuture;
}
