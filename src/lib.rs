//! The agent loop as a stack of tower services, in which every callback is a layer.
//!
//! ```text
//! async fn(AgentRequest) -> Result<AgentResponse, Error>
//! ```
//!
//! An agent is a [`tower::Service`] made of a `Service<ModelRequest>` and a `Service<ToolRequest>`.
//! It makes a few kinds of calls, and every callback is a [`Layer`](tower_layer::Layer) around one
//! of them.
//!
//! | call | service | implemented by |
//! |---|---|---|
//! | [agent] | [`AgentRequest`] `->` [`AgentResponse`] | [`Agent`]: the loop, or a team of agents |
//! | [model] | [`ModelRequest`] `->` [`ModelResponse`] | a provider, a script, a `service_fn` |
//! | [tool] | [`ToolRequest`] `->` [`ToolResponse`] | a typed function, a [`ToolSet`], any service |
//!
//! One trait, [`Callback`], and one generic layer, [`Callbacks`], serve all of them. Implement
//! [`Request`] to add a call of your own.
//!
//! | crate | adds |
//! |---|---|
//! | [`tower-agent-providers`](https://docs.rs/tower-agent-providers) | models over HTTP: OpenAI, Anthropic, Gemini, Ollama and what speaks their protocols; a default client |
//! | [`tower-agent-conversations`](https://docs.rs/tower-agent-conversations) | stored conversations: sessions, threads of clients, and the questions that wait in them |
//! | [`tower-agent-agui`](https://docs.rs/tower-agent-agui) | serves an agent over HTTP to AG-UI clients |
//! | [`tower-agent-durable`](https://docs.rs/tower-agent-durable) | conversations and durable runs, in SQLite or PostgreSQL |
//! | [`tower-agent-middleware`](https://docs.rs/tower-agent-middleware) | retry, fallback, timeout, budget, redaction, approval, guardrails |
//! | [`tower-agent-dbos`](https://docs.rs/tower-agent-dbos) | durable runs over several machines, with DBOS in PostgreSQL |
//! | [`tower-agent-restate`](https://docs.rs/tower-agent-restate) | durable runs over several machines, with Restate |
//! | [`tower-agent-mcp`](https://docs.rs/tower-agent-mcp) | tools of MCP servers, and agents served as MCP servers |
//! | [`tower-agent-policy`](https://docs.rs/tower-agent-policy) | rules of a business as data, in Cedar, decided at each tool call |
//! | [`tower-agent-console`](https://docs.rs/tower-agent-console) | a page that shows what agents did, in the application's own server |
//! | [`tower-agent-otel`](https://docs.rs/tower-agent-otel) | OpenTelemetry spans and metrics of runs, by the GenAI conventions |
//! | [`tower-agent-test`](https://docs.rs/tower-agent-test) | for tests: a scripted model, recordings that replay a run without its model, assertions, probes |
//!
//! ```
//! use std::time::Duration;
//!
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use tower::timeout::TimeoutLayer;
//! use tower_agent::{
//!     Action, Agent, BoxError, Effect, ModelRequest, ModelResponse, Tool, ToolResponse,
//! };
//! use tower_agent::callback::{after_model, before_tool};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Add {
//!     a: f64,
//!     b: f64,
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let model = tower::service_fn(|_: ModelRequest| async {
//! #     Ok::<_, BoxError>(ModelResponse::from_text("3"))
//! # });
//! let agent = Agent::builder(model) // any Service<ModelRequest>
//!     .instructions("You are good at sums.")
//!     .tool(Tool::function("add", "Adds two numbers.", |Add { a, b }| a + b).effect(Effect::Pure))
//!     .on_model(after_model(|_, response| println!("{} tokens", response.usage().total())))
//!     .model_layer(TimeoutLayer::new(Duration::from_secs(30))) // any tower layer
//!     .on_tool(before_tool(|request| match request.name() {
//!         "add" => Action::Continue,
//!         _ => Action::Respond(ToolResponse::error("not allowed")),
//!     }))
//!     .build()?;
//!
//! let response = agent.run("What is 1 + 2?").await?;
//! assert_eq!(response.text(), "3");
//! # Ok(())
//! # }
//! ```
//!
//! # Order
//!
//! Registration order is layer order: the first registered is outermost. Neighbouring callbacks
//! form one *band*, and within a band the first registered acts first in *every* phase. A tower
//! layer ends the band: everything registered after it is inside it. With the callbacks `a`, `b`,
//! then a `TimeoutLayer`, then `c`, `d`:
//!
//! ```text
//!            request                                       response
//!               |                                              ^
//!   +-----------v---------- band a, b --------------------------|--------------+
//!   |        a>  b>                                        <a  <b              |
//!   |   +-------v---------- TimeoutLayer -----------------------|----------+   |
//!   |   |   +---v---------- band c, d --------------------------|------+   |   |
//!   |   |   |  c>  d>                                      <c  <d      |   |   |
//!   |   |   |       \-----------------> call ------------------/       |   |   |
//!   |   |   +----------------------------------------------------------+   |   |
//!   |   +------------------------------------------------------------------+   |
//!   +--------------------------------------------------------------------------+
//!
//!   a> b> c> d> call <c <d <a <b
//! ```
//!
//! Two callbacks added as two layers, `.layer(a).layer(b)`, are two bands, one inside the other:
//! `a> b> call <b <a`.
//!
//! # The ladder
//!
//! Use the first of these that is sufficient.
//!
//! 1. **A closure**: [`before_model`](callback::before_model),
//!    [`after_tool`](callback::after_tool), [`on_model_error`](callback::on_model_error) and the
//!    like, for one hook.
//! 2. **A [`Callback`]**: a type with several hooks, or with hooks for several calls.
//! 3. **A wrap**: [`wrap_model`](callback::wrap_model), [`wrap_tool`](callback::wrap_tool),
//!    [`wrap_agent`](callback::wrap_agent). Use it for one piece of code around the call: to time
//!    it, to run it twice.
//! 4. **A [`Layer`](tower_layer::Layer)**: a reusable middleware with its own service and future,
//!    without boxing. [Tower's own layers](guide::tower_layers) work too, most of them unchanged.
//! 5. **A [`Service`](tower::Service)** that replaces the model or a tool.
//!
//! Two compiler errors need explaining. A closure that always returns an error must name the type,
//! `Err::<(), _>(..)`. An `async` closure needs the constructor whose name ends in `_async` and a
//! parameter with a type, `before_model_async(async |request: &mut ModelRequest| ..)`. The
//! [table](callback#closures) lists the others.
//!
//! # A second turn
//!
//! Every run ends with a [`Checkpoint`], which serialises: store it with the session.
//!
//! ```
//! use tower_agent::{Agent, AgentRequest, BoxError};
//!
//! # async fn chat(agent: Agent) -> Result<(), BoxError> {
//! let first = agent.run("Who wrote Emma?").await?;
//! let request = AgentRequest::resume(first.checkpoint()).with_message("And when?");
//! println!("{}", agent.run(request).await?.text());
//! # Ok(())
//! # }
//! ```
//!
//! Answer the interrupts of a run with [`with_resolutions`](AgentRequest::with_resolutions), and a
//! tool call that the client executes with [`with_answer`](AgentRequest::with_answer).
//!
//! # Where dependencies go
//!
//! A tool or a callback is a closure that owns its dependencies: clone an `Arc` into it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tower_agent::{BoxError, Tool};
//!
//! # struct Shop;
//! # impl Shop {
//! #     async fn price(&self, article: &str) -> Result<f64, BoxError> { Ok(article.len() as f64) }
//! # }
//! fn price(shop: Arc<Shop>) -> Tool {
//!     Tool::function("price", "The price of an article.", move |article: String| {
//!         let shop = shop.clone();
//!         async move { shop.price(&article).await }
//!     })
//! }
//! # drop(price(Arc::new(Shop)));
//! ```
//!
//! Data that belongs to one run goes into [tools of that run](AgentRequest::with_tools). The model
//! reads a tool's full error, unless the agent has a
//! [`tool_failure_message`](AgentBuilder::tool_failure_message).
//!
//! # Streams
//!
//! [`Agent::stream`] returns a stream of events: text, reasoning, tool calls, state, decisions of
//! callbacks. A streamed call is still one call with one complete response, which callbacks and
//! layers see; a [mapper](stream::Mapper) sees its deltas. If an attempt fails after output was
//! streamed, or a response is replaced, an event tells the consumer to discard that output.
//!
//! # Typed answers
//!
//! [`Agent::run_typed`] runs until the model answers with JSON of a type, and has it repair an
//! answer that does not match. An [`AnswerFormat`](agent::AnswerFormat) says how the model is
//! asked, for any service and any stream.
//!
//! ```
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//! use tower_agent::Agent;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Invoice {
//!     number: String,
//!     /// In cents.
//!     total: u64,
//! }
//!
//! # async fn read(agent: Agent, letter: &str) -> tower_agent::Result<()> {
//! let invoice: Invoice = agent.run_typed(letter).await?.into_value()?;
//! # drop((invoice.number, invoice.total));
//! # Ok(())
//! # }
//! ```
//!
//! # Guards
//!
//! [`tower-agent-middleware`](https://docs.rs/tower-agent-middleware) contains
//! [retry](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/retry/),
//! [fallback](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/fallback/),
//! [timeout](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/timeout/),
//! [budget](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/budget/),
//! redaction,
//! [approval](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/approval/) and
//! [guardrails](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/guardrail/).
//! The [guide](guide::guards) says which to use, in which order, and how to write your own.
//! [Trust](guide::trust) says what a guard can rely on, and [conversations](guide::conversations)
//! what runs at most once when a run fails, is interrupted or resumes in another process.
//!
//! # Readiness
//!
//! Readiness passes through the stack: `LoadShed` over `ConcurrencyLimit` sheds load. Every call
//! uses its own clone, which is polled ready for that call, so no idle clone holds a place in a
//! limiter's queue. [`Agent`] and [`ToolSet`] are always ready and wait inside the call.
//!
//! # Features
//!
//! None is enabled by default.
//!
//! | feature | adds |
//! |---|---|
//! | `wasm-js` | randomness from JavaScript: with it the crate builds for `wasm32-unknown-unknown` |

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests, examples and benches may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod any_value;
mod call_kind;
mod chance;
mod conversation;
mod depth;
mod function;
mod json_types;
mod lock;
mod maybe_future;
mod metadata;
mod on_drop;
mod panic;
mod run;
mod state;
mod type_name;
mod version;

pub mod agent;
pub mod call;
pub mod callback;
pub mod compat;
pub mod context;
pub mod error;
pub mod gauge;
pub mod guide;
pub mod message;
pub mod model;
pub mod serve;
pub mod stream;
pub mod tool;

#[doc(inline)]
pub use self::agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, EndReason, RunStream,
};
#[doc(inline)]
pub use self::call::Request;
#[doc(inline)]
pub use self::callback::{Action, Callback, Callbacks, Recovery};
#[doc(inline)]
pub use self::context::{RunContext, State};
#[doc(inline)]
pub use self::error::{BoxError, Error, ErrorKind, Interrupt, Resolution, Result};
#[doc(inline)]
pub use self::message::{Message, Part, Role, Usage};
#[doc(inline)]
pub use self::model::{ModelRequest, ModelResponse, Settings};
#[doc(inline)]
pub use self::tool::{Effect, Json, Tool, ToolRequest, ToolResponse, ToolSet};

/// Cancels runs: see [`AgentRequest::with_cancellation`].
#[doc(inline)]
pub use tokio_util::sync::CancellationToken;
