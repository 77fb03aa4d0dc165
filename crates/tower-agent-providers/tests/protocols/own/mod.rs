//! Features that only one protocol has.

mod anthropic;
mod bedrock;
mod cohere;
mod endings;
mod gemini;
mod interactions;
mod issuers;
mod ollama;
mod operations;
mod options;
mod responses;
mod server_tools;
mod typed;
mod vertex;
