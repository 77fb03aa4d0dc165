//! Spans, metrics and events as a collector receives them: sent over OTLP, and decoded with the
//! protocol's own types; and spans as a server that knows the conventions reads them.

mod attempts;
mod content;
mod conventions;
mod drops;
mod endings;
mod flow;
mod metrics;
mod mlflow;
mod phoenix;
mod reached;
mod received;
mod receiver;
mod registry;
mod replays;
mod started;
mod structure;
mod world;
