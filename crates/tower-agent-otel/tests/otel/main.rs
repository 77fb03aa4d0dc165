//! Spans, metrics and events as a collector receives them: sent over OTLP, and decoded with the
//! protocol's own types.

mod attempts;
mod content;
mod drops;
mod endings;
mod metrics;
mod received;
mod receiver;
mod structure;
mod world;
