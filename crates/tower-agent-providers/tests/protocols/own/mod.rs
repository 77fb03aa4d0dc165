//! Features that only one protocol has.

mod anthropic;
mod cohere;
mod gemini;
mod interactions;
mod ollama;
mod responses;
