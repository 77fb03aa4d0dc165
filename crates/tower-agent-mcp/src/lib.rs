//! Connects agents to MCP: tools of MCP servers as an agent's tools, and agents as MCP servers.
//!
//! | feature | adds |
//! |---|---|
//! | `client` | the tools of an MCP server as an agent's tools |
//! | `server` | agents and tools served as an MCP server |

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests, examples and benches may; the library may not.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::panic, clippy::unwrap_used))]

#[cfg(feature = "client")]
pub mod client;

/// The README's example, so that it compiles.
#[cfg(all(doctest, feature = "client", feature = "server"))]
#[doc = include_str!("../README.md")]
struct Readme;
