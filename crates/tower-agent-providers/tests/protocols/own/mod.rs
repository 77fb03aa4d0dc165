//! Features that only one protocol has.

mod anthropic;
mod cohere;
mod gemini;
mod interactions;
mod ollama;
mod options;
mod responses;
mod server_tools;
mod typed;
