//! Connects agents to MCP: tools of MCP servers as an agent's tools, and agents as MCP servers.
//!
//! ```text
//! McpClient: Service<ToolRequest>     McpServer: agents and tools, over stdio and HTTP
//! ```
//!
//! | feature | adds |
//! |---|---|
//! | `client` | `client`: the tools of an MCP server as an agent's tools |
//! | `oauth` | `client::oauth`: authorization of a client |
//! | `opentelemetry` | trace context in `_meta`, of clients and servers |
//! | `server` | `server`: agents and tools served as an MCP server |
//!
//! It uses [rmcp](https://docs.rs/rmcp), the official SDK, whose types are not in its signatures.
//!
//! # A complete program
//!
//! An agent and a tool on standard input and output: `cargo run --example mcp_server`.
//!
//! ```no_run
#![cfg_attr(feature = "server", doc = include_str!("../examples/mcp_server.rs"))]
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests, examples and benches may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

#[cfg(feature = "client")]
pub mod client;
#[cfg(any(feature = "client", feature = "server"))]
mod lock;
#[cfg(any(feature = "client", feature = "server"))]
mod progress;
#[cfg(feature = "server")]
pub mod server;
#[cfg(any(feature = "client", feature = "server"))]
mod trace;

#[cfg(any(feature = "client", feature = "server"))]
pub use self::progress::PROGRESS;

/// The README's example, so that it compiles.
#[cfg(all(doctest, feature = "client", feature = "server"))]
#[doc = include_str!("../README.md")]
struct Readme;
