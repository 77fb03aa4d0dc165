//! The tools of an MCP server as tools of an agent.
//!
//! ```text
//! McpClient: Service<ToolRequest>  =  the server's tools, over a child process, HTTP or a stream
//! ```
//!
//! ```no_run
//! use tokio::process::Command;
//! use tower_agent::model::ModelService;
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_mcp::client::McpClient;
//!
//! # async fn ask(model: impl ModelService) -> Result<(), BoxError> {
//! let mut command = Command::new("npx");
//! command.args(["-y", "@modelcontextprotocol/server-everything"]);
//! let everything = McpClient::child_process(command).prefix("everything_").connect().await?;
//!
//! let agent = Agent::builder(model).tools(everything.tools().await).build()?;
//! println!("{}", agent.run("Add 1 and 2.").await?.text());
//! # Ok(())
//! # }
//! ```
//!
//! # The tools
//!
//! [`McpClient::tools`] returns the server's tools, sorted by name, so that the start of a prompt
//! stays the same. It asks the server again only if the list may have changed: if the server has
//! reported so, if the time that it gave the list is over, or in a new session. If that fails, the
//! list stays as it was. An agent that is built with the tools keeps those; with the client as a
//! callback, every run starts with the current ones, and keeps them until it ends:
//!
//! ```
//! # use tower_agent::model::ModelService;
//! # use tower_agent::{Agent, BoxError};
//! # use tower_agent_mcp::client::McpClient;
//! # fn build(model: impl ModelService, client: McpClient) -> Result<Agent, BoxError> {
//! let agent = Agent::builder(model).on_agent(client).build()?;
//! # Ok(agent)
//! # }
//! ```
//!
//! A tool that an agent cannot offer, because of its name or its schema, or because it runs only as
//! a task of protocol version 2025-11-25, is left out, and logged. In a name, characters that
//! providers reject become `_`.
//!
//! The [`Effect`](tower_agent::Effect) of every tool is
//! [`Mutating`](tower_agent::Effect::Mutating), since its annotations are only the server's word,
//! and retries and approvals rely on effects. With [`effect`](McpClientBuilder::effect) the caller
//! takes the annotations of a server that it trusts: `readOnlyHint` is
//! [`Pure`](tower_agent::Effect::Pure), `idempotentHint`
//! [`Idempotent`](tower_agent::Effect::Idempotent), anything else `Mutating`.
//!
//! # Results and errors
//!
//! | the server | the call |
//! |---|---|
//! | returns content | `Ok`; text, images, audio and resources become [parts](tower_agent::Part), which the model reads; structured content becomes the [value](tower_agent::ToolResponse::value), which it reads only if there is nothing else |
//! | returns `isError` | `Ok` with an [error response](tower_agent::ToolResponse::is_error), which the model reads |
//! | rejects the call | `Err` with the server's message, which the model reads |
//! | cannot be reached, dies, breaks the protocol | `Err` of kind [`Connection`](tower_agent::ErrorKind::Connection) or [`Protocol`](tower_agent::ErrorKind::Protocol); the next call connects again |
//! | refuses the request over HTTP (4xx, 503) | `Err` of the kind of the status, with the server's reason, retryable by that kind: nothing was carried out |
//! | refuses the session over HTTP, or does not know it any more | the call is made once more, in a new session, which all calls share; `Err` of kind `Connection` if that is refused too |
//! | does not answer | `Err` of kind [`Timeout`](tower_agent::ErrorKind::Timeout); the server is told that the call is cancelled |
//! | asks for input | an [interrupt](tower_agent::Interrupt), see below |
//! | answers with a task | the task is polled until it ends |
//!
//! Any other `Err` after the call was sent is [retryable](tower_agent::Error::is_retryable) only if
//! the effect allows it. Over HTTP, what comes as the answer to a request is its answer, whatever
//! id it has. A stream that always ends without a message is opened again after waits that grow to
//! a minute. Dropping a call cancels it at the server. Progress is emitted on the run's stream, as
//! a [custom event](tower_agent::stream::EventKind::Custom) named [`PROGRESS`](crate::PROGRESS).
//!
//! # Questions of the server
//!
//! If the server asks the user for input (elicitation), the run is interrupted with one
//! [`Interrupt`](tower_agent::Interrupt) for each question: its reason is `input_required`, its
//! response schema that of the question. The run [resumes](tower_agent::AgentRequest::resume) by
//! repeating the call with the answers:
//!
//! | the resolution | the server receives |
//! |---|---|
//! | [`resolved`](tower_agent::Resolution::resolved) with the form's content | `accept` with the content |
//! | `resolved` with `null` | `decline` |
//! | [`cancelled`](tower_agent::Resolution::cancelled) | `cancel` |
//!
//! Since protocol version 2026-07-28 the server receives its own state with the answers. A server
//! of an earlier version asks in the middle of a call: that call is cancelled, and the repeated one
//! answers the same question when it is asked. A tool that acts before it asks then acts twice.
//! Over a child process or a stream, such a server does not say which call it asks for; if several
//! are running, the question is refused. It may also ask for a call that was cancelled: give users
//! who must not see each other's questions a client each.
//!
//! If the server asks for a completion of a model (sampling), the
//! [model](McpClientBuilder::sampling) answers, as a part of the run whose call it is. Without a
//! model, or without a call, it is refused.
//!
//! # Resources, prompts, roots and log messages
//!
//! | the server has | the caller |
//! |---|---|
//! | [resources](McpClient::resources) | [reads](McpClient::read_resource) them as parts of a message, or gives the model [two tools](McpClient::resource_tools) to list and read them |
//! | [prompts](McpClient::prompts) | [reads](McpClient::prompt) one as the messages that a run begins with |
//! | use for directories | names them as [roots](McpClientBuilder::root) |
//! | log messages | finds them in `tracing`, or [takes](McpClientBuilder::on_log) them, of the [level](McpClientBuilder::log_level) that it asks for |
//!
//! # Authorization
//!
//! A layer around the HTTP service of [`McpClient::http`] can send a token that the program has.
//! With the feature `oauth` the client [gets one](oauth), from the user or for a secret.
//!
//! # Traces
//!
//! Every request is a `tracing` span by the conventions of OpenTelemetry for MCP, such as
//! `tools/call {tool}` of kind client, inside the span of the call. With the feature
//! `opentelemetry` the `_meta` of the request carries its trace context, as the
//! [propagator](https://docs.rs/opentelemetry/latest/opentelemetry/global/fn.set_text_map_propagator.html)
//! of the program writes it, and the spans of the server become part of the trace:
//!
//! ```
//! use opentelemetry::global::set_text_map_propagator;
//! use opentelemetry_sdk::propagation::TraceContextPropagator;
//!
//! set_text_map_propagator(TraceContextPropagator::new());
//! ```
//!
//! A server is told the ids of the trace by it, and, if the program propagates baggage, that too.
//! The HTTP service is called in the span, so that a layer around it can send the context in a
//! header.

mod backoff;
mod builder;
mod calls;
mod config;
mod connect_error;
mod connection;
mod content;
mod declaration;
mod environment;
mod error;
mod handler;
mod http_service;
mod lifecycle;
mod link;
mod list;
mod log;
mod logins;
mod mcp_client;
#[cfg(feature = "oauth")]
pub mod oauth;
mod pages;
mod prompts;
mod questions;
mod remote_call;
mod remote_tool;
mod request;
mod resources;
mod roots;
mod run;
mod sampling;
mod send;
mod task;
mod transport;

pub use self::builder::McpClientBuilder;
pub use self::lifecycle::Lifecycle;
pub use self::log::{LogLevel, LogMessage};
pub use self::mcp_client::McpClient;
pub use self::prompts::{Prompt, PromptArgument};
pub use self::resources::{Resource, ResourceTemplate};
