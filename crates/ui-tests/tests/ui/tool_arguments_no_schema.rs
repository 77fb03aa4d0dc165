// The cure: `#[derive(JsonSchema)]`.
use serde::Deserialize;
use tower_agent::Tool;

#[derive(Deserialize)]
struct Add {
    a: f64,
    b: f64,
}

fn main() {
    let _ = Tool::function("add", "Adds.", |Add { a, b }| a + b);
}
