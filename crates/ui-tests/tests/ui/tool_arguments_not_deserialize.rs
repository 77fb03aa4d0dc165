// The cure: `#[derive(Deserialize)]`.
use schemars::JsonSchema;
use tower_agent::Tool;

#[derive(JsonSchema)]
struct Add {
    a: f64,
    b: f64,
}

fn main() {
    let _ = Tool::function("add", "Adds.", |Add { a, b }| a + b);
}
