//! Features that only Gemini has.

mod answers;
mod building;
mod contents;
mod conversations;
mod faults;
mod properties;
mod settings;
mod streams;

use serde_json::{Value, json};
use tower_agent::message::ProviderData;
use tower_agent_providers::HttpClient;
use tower_agent_providers::gemini::Gemini;

use crate::server::{self, Reply, Server, chunked};

fn model(server: &Server) -> Gemini<HttpClient> {
    named(server, "gemini-3-flash-preview")
}

fn named(server: &Server, model: &str) -> Gemini<HttpClient> {
    Gemini::builder()
        .base_url(&server.base_url)
        .api_key("")
        .model(model)
        .build()
        .unwrap()
}

/// Events as Google writes them.
fn event(chunk: &Value) -> String {
    format!("data: {chunk}\r\n\r\n")
}

fn events(chunks: &[Value]) -> Reply {
    chunked(chunks.iter().map(event))
}

fn parts(parts: Value) -> Value {
    json!({ "candidates": [{ "content": { "role": "model", "parts": parts }, "index": 0 }] })
}

fn finished(parts: Value, reason: &str) -> Value {
    let content = json!({ "role": "model", "parts": parts });
    json!({ "candidates": [{ "content": content, "finishReason": reason, "index": 0 }] })
}

fn says(text: &str) -> Reply {
    server::json(200, &finished(json!([{ "text": text }]), "STOP"))
}

fn signed(signature: &str) -> ProviderData {
    ours(json!({ "thoughtSignature": signature }))
}

fn ours(value: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set("gemini", value);
    data
}
