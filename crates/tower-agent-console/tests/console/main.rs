//! The console, through its HTTP service.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod bounds;
mod canary;
mod deleting;
mod durable;
mod fork;
mod forking;
mod inbox;
mod limits;
mod live;
mod prefixes;
mod recording;
mod runs;
mod storing;
mod texts;
mod world;
