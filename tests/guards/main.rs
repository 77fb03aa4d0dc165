//! The ready-made guards.

mod fallback;
mod retry;
#[path = "../support/mod.rs"]
mod support;
mod timeout;
mod watch;
