//! The semantics of other frameworks, beside the frameworks themselves.
//!
//! A program is a tree of agents, or one with middleware, whose models say what a case file tells
//! them. A driver in Python runs it on the original, a test runs it here, and what happened must be
//! the same, unless the case says with which row of the framework's page it differs.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

mod adk;
mod comparison;
mod langchain;
