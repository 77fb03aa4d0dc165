//! AG-UI: what travels, what an agent's events become, and an agent behind HTTP.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "../../../../benches/support/allocations.rs"]
mod allocations;
mod any;
mod rules;
mod watched;

mod client;
mod server;
mod translate;
mod trust;
mod wire;
