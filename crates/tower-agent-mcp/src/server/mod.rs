//! Agents and tools served as an MCP server.
//!
//! ```text
//! McpServer  =  agents and tools, over standard input and output, streamable HTTP or a stream
//! ```
//!
//! ```
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_mcp::server::McpServer;
//!
//! # async fn serve(agent: Agent) -> Result<(), BoxError> {
//! let server = McpServer::builder("support", "1.0.0").agent(agent).build()?;
//! server.serve_stdio().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Over HTTP it is a tower service, for any HTTP server. Put a layer around it that authenticates
//! the client, and say [who it is](McpServerBuilder::principal):
//!
//! ```
//! use tower_agent::{Agent, BoxError};
//! use tower_agent_mcp::server::McpServer;
//!
//! #[derive(Clone)]
//! struct User(String);
//!
//! # fn app(agent: Agent) -> Result<axum::Router, BoxError> {
//! let server = McpServer::builder("support", "1.0.0")
//!     .agent(agent)
//!     .principal(|parts| Some(parts.extensions.get::<User>()?.0.clone()))
//!     .build()?;
//! let app = axum::Router::new().route_service("/mcp", server.into_http());
//! # Ok(app)
//! # }
//! ```
//!
//! # Calls
//!
//! An [agent](McpServerBuilder::agent) is a tool with its name and description, and one argument,
//! `request`. Every call is a run of its own. A client that asks for progress receives the agent's
//! text as it is written, and what a tool reports as [`PROGRESS`](crate::PROGRESS). A call that the
//! client cancels, and one whose client is gone, is dropped, and no answer is kept for a client
//! that comes back:
//!
//! | the client | is gone |
//! |---|---|
//! | over HTTP, in any protocol version | when it closes the connection of the call, or ends the session |
//! | over standard streams or another stream | 5 s after its end: until then calls can be answered |
//!
//! | the run | the client receives |
//! |---|---|
//! | completes | the text, or the [parts](tower_agent::ToolResponse::parts) of the tool; an object as structured content too |
//! | fails | a result that is an error, with a [text for the client](McpServerBuilder::failure_message) and not that of the error itself |
//! | is interrupted | questions, see below |
//!
//! Over HTTP, what comes before the answer, such as progress, makes the response a stream of
//! events. An answer alone is JSON if it is larger than 512 KiB, since some clients read no larger
//! event, that of the official Python SDK none of 1 MiB; in a session always, unless it takes more
//! than 25 s, when a proxy might give up a connection without a response.
//! [`answer_with_json`](McpServerBuilder::answer_with_json) makes it JSON whenever it comes alone.
//!
//! # Limits
//!
//! | limit | default |
//! |---|---|
//! | [`max_run_time`](McpServerBuilder::max_run_time) of a call, over any transport | an hour |
//! | [`max_runs`](McpServerBuilder::max_runs): requests over HTTP at once | 1,000 |
//! | [`max_runs_per_principal`](McpServerBuilder::max_runs_per_principal) at once | 100 |
//! | [`read_timeout`](McpServerBuilder::read_timeout), in which a client takes nothing | a minute |
//! | [`max_request`](McpServerBuilder::max_request) | 4 MiB |
//! | [`body_timeout`](McpServerBuilder::body_timeout), in which a request arrives | 30 seconds |
//! | a request that begins a session | 64 KiB, always |
//! | [`max_sessions`](McpServerBuilder::max_sessions) of clients of earlier versions | 10,000 |
//! | [`session_timeout`](McpServerBuilder::session_timeout) without a message | 5 minutes |
//! | length of a token of progress, which stands in every notification | 1 KiB, always |
//!
//! A client over standard streams or another stream has started the server, or the program has let
//! it in: of these, the time of a call and the length of a token are for it as well.
//!
//! # Traces
//!
//! Every call is a `tracing` span by the conventions of OpenTelemetry for MCP, `tools/call {tool}`
//! of kind server, and the run is inside it. With the feature `opentelemetry` its parent is the
//! span of the client, which the `_meta` of the call names, as the
//! [propagator](https://docs.rs/opentelemetry/latest/opentelemetry/global/fn.set_text_map_propagator.html)
//! of the program reads it; the span of the HTTP request is a link then, and otherwise the parent.
//!
//! # Interrupts
//!
//! Each interrupt is a question for the client's user (elicitation), with the interrupt's message,
//! its payload and its response schema. MCP allows only fields of simple types in a form: optional
//! fields of other types are left out, and if a required one is of another type, the form has one
//! field, `answer`, for JSON. The user's answer resolves the interrupt; a refusal
//! [cancels](tower_agent::Resolution::cancelled) it.
//!
//! | the client | how it is asked |
//! |---|---|
//! | speaks 2026-07-28 | the result is `input_required` and carries the run's [checkpoint](tower_agent::Checkpoint), sealed; the client repeats the call with the answers, here or at another process with the [key](McpServerBuilder::seal_key) |
//! | speaks an earlier version | it is asked during the call |
//! | declares no elicitation | it receives an error, which says what the run waits for: since 2026-07-28 that of the missing capability, before a result that is an error |
//!
//! A call with an interrupt [for a role](tower_agent::Interrupt::for_role) ends with a result that
//! is an error and names the role: a client's user has none.
//!
//! A question that has [expired](tower_agent::Interrupt::with_expiry) has the outcome that it
//! names: one that is asked during the call ends then, and a call that is repeated with a later
//! answer is an error of the protocol, `invalid params`.
//!
//! A sealed checkpoint can be neither read nor changed by the client, is valid for one call with
//! the same tool and arguments, by the same [principal](McpServerBuilder::principal), for 24 hours,
//! and is accepted once by each process.

mod answers;
mod bounds;
mod builder;
mod caller;
mod content;
mod failure;
mod form;
mod handler;
mod http_settings;
mod mcp_http;
mod mcp_server;
mod progress;
mod response_body;
mod saved;
mod seal;
mod served;
mod served_call;
mod session;
mod sessions;

pub use self::builder::{McpServerBuilder, ServerBuildError};
pub use self::caller::Caller;
pub use self::mcp_http::{McpHttp, ResponseFuture};
pub use self::mcp_server::McpServer;
pub use self::response_body::ResponseBody;
