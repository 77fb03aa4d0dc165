//! Features that only Gemini's Interactions API has.

mod answers;
mod faults;
mod properties;
mod requests;

use serde_json::{Value, json};
use tower_agent::message::ProviderData;
use tower_agent_providers::HttpClient;
use tower_agent_providers::gemini::GeminiInteractions;

use crate::server::{Reply, Server, chunked, json as reply};

fn model(server: &Server) -> GeminiInteractions<HttpClient> {
    named(server, "gemini-3.6-flash")
}

fn named(server: &Server, model: &str) -> GeminiInteractions<HttpClient> {
    let builder = GeminiInteractions::builder().base_url(&server.base_url);
    builder.api_key("").model(model).build().unwrap()
}

fn interaction(status: &str, steps: Value) -> Value {
    json!({ "id": "v1_1", "status": status, "steps": steps })
}

fn answers(steps: Value) -> Reply {
    reply(200, &interaction("completed", steps))
}

fn says(text: &str) -> Value {
    json!({ "type": "model_output", "content": [{ "type": "text", "text": text }] })
}

fn events(events: &[Value]) -> Reply {
    chunked(events.iter().map(|event| format!("data: {event}\n\n")))
}

fn start(index: u64, step: Value) -> Value {
    json!({ "event_type": "step.start", "index": index, "step": step })
}

fn delta(index: u64, delta: Value) -> Value {
    json!({ "event_type": "step.delta", "index": index, "delta": delta })
}

fn stop(index: u64) -> Value {
    json!({ "event_type": "step.stop", "index": index })
}

fn completed(status: &str) -> Value {
    json!({ "event_type": "interaction.completed", "interaction": { "status": status } })
}

fn ours(value: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set("gemini_interactions", value);
    data.set("gemini", json!({ "not": "sent" }));
    data
}
