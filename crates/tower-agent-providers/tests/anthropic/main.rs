//! Anthropic's Messages API, byte for byte, over real sockets.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    reason = "a test fails by panicking, and the server serves other protocols too"
)]

#[path = "../support/server.rs"]
mod server;

mod agents;
mod answers;
mod caching;
mod conversations;
mod errors;
mod fixtures;
mod media;
mod reasoning;
mod settings;
mod streams;
