//! What only one protocol has.

mod anthropic;
mod cohere;
mod gemini;
mod ollama;
mod responses;
