//! The tool call: its request, its response and the service alias.
//!
//! ```text
//! ToolRequest  ->  Result<ToolResponse, Error>
//! ```
//!
//! A tool is a declaration, which the model reads, and a [`ToolService`], which executes the calls:
//! a typed function, a set of tools, a remote server.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use tower_agent::{Effect, Tool};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add {
//!     /// The first number.
//!     a: f64,
//!     /// The second number.
//!     b: f64,
//! }
//!
//! let add = Tool::function("add", "Adds two numbers.", |Add { a, b }| a + b).effect(Effect::Pure);
//! assert_eq!(add.declaration().name(), "add");
//! assert_eq!(add.declaration().parameters()["properties"]["a"]["type"], "number");
//! ```
//!
//! Layers around one tool are applied in registration order, the first outermost:
//!
//! ```
//! use std::time::Duration;
//! use tower::timeout::TimeoutLayer;
//! use tower_agent::{Error, Tool};
//! use tower_agent::callback::before_tool;
//! # use serde_json::Value;
//!
//! let slow = Tool::function("search", "Searches.", async |query: Value| query)
//!     .layer(before_tool(|request| println!("searching {}", request.arguments())))
//!     .layer(TimeoutLayer::new(Duration::from_secs(5)));
//! # drop(slow);
//! ```

mod answer;
mod arguments;
mod declaration;
mod function;
mod output;
mod request;
mod response;
mod schema;
mod seen;
mod service;
mod set;
#[expect(clippy::module_inception, reason = "the noun of the folder")]
mod tool;

pub(crate) use self::answer::AnswerSchema;
pub use self::arguments::{InvalidArguments, ToolArguments};
pub use self::declaration::{Effect, ToolDeclaration};
pub use self::function::IntoToolFuture;
pub use self::output::{IntoToolResponse, Json};
pub use self::request::ToolRequest;
pub use self::response::ToolResponse;
pub(crate) use self::schema::answer;
pub(crate) use self::seen::{SeenToolRequest, SeenToolResponse};
pub use self::service::{BoxTool, ToolService};
pub use self::set::{InvalidTool, ToolSet};
pub(crate) use self::tool::NameLayers;
pub use self::tool::Tool;
