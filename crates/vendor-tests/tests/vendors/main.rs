//! The providers, checked against the vendors' own types and against a TLS server, and the context
//! window with a vendor's tokenizer.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "../../../tower-agent-providers/tests/support/server.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod server;

#[path = "../../../tower-agent-providers/tests/protocols/answer.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod answer;
#[path = "../../../tower-agent-providers/tests/protocols/column.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod column;
#[path = "../../../tower-agent-providers/tests/protocols/columns/mod.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod columns;
#[path = "../../../tower-agent-providers/tests/support/frames.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod frames;

mod requests;
mod tls;
mod tokenizer;
