//! AG-UI 1.0: what travels, in which order, and what it becomes.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

#[path = "../../../../benches/support/allocations.rs"]
mod allocations;
#[path = "../support/any.rs"]
mod any;
#[path = "../support/order.rs"]
mod rules;

mod conversation;
mod events;
mod history;
mod input;
mod order;
mod properties;
mod sse;
