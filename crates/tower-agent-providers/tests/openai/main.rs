//! The OpenAI protocol, byte for byte, over real sockets.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "../support/server.rs"]
mod server;

mod answers;
mod beside;
mod bodies;
mod building;
mod choosing;
mod connections;
mod dialects;
mod faults;
mod hosts;
mod keys;
mod layers;
mod limits;
mod pressure;
mod proxies;
mod recordings;
mod requests;
mod secrets;
mod silence;
mod streams;
mod tool_calls;
mod tower_layers;
