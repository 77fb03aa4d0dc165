//! The protocols of the table.

pub mod anthropic;
pub mod chat;
pub mod cohere;
pub mod converse;
pub mod gemini;
pub mod interactions;
pub mod ollama;
pub mod responses;
