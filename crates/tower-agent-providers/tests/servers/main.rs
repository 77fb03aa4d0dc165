//! The protocols against servers that nobody here wrote.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test fails by panicking"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Message, ModelRequest};

mod aimock;
mod llm_katan;
mod vendors;

fn asks(text: &str) -> ModelRequest {
    ModelRequest::new([Message::user(text)])
}

fn with_tools(request: ModelRequest) -> ModelRequest {
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"],
    });
    let weather = ToolDeclaration::new("weather", "Tells the weather.").with_parameters(schema);
    let time = ToolDeclaration::new("time", "Tells the time.");
    request.with_tools(Arc::new(vec![Arc::new(weather), Arc::new(time)]))
}

/// Where the servers are installed.
fn servers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers")
}
