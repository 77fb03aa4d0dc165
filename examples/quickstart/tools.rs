//! The tools. Their schemas are derived from the types, including doc comments.

use schemars::JsonSchema;
use serde::Deserialize;
use tower_agent::{Effect, Tool};

#[derive(Deserialize, JsonSchema)]
struct Pair {
    /// The first number.
    a: f64,
    /// The second number.
    b: f64,
}

#[derive(Deserialize, JsonSchema)]
struct PercentOf {
    /// The number of hundredths.
    percent: f64,
    /// Of what.
    whole: f64,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// Returns the agent's tools. A callback blocks the last one.
pub(crate) fn tools() -> [Tool; 6] {
    let pure = |tool: Tool| tool.effect(Effect::Pure);
    [
        pure(Tool::function(
            "add",
            "Adds two numbers.",
            |Pair { a, b }| finite(a + b),
        )),
        pure(Tool::function(
            "subtract",
            "Subtracts b from a.",
            |Pair { a, b }| finite(a - b),
        )),
        pure(Tool::function(
            "multiply",
            "Multiplies two numbers.",
            |Pair { a, b }| finite(a * b),
        )),
        pure(Tool::function("divide", "Divides a by b.", divide)),
        pure(Tool::function(
            "percent_of",
            "Takes a percentage of a number.",
            percent_of,
        )),
        Tool::function(
            "delete_all_records",
            "Deletes all records.",
            |Nothing {}| "all is deleted",
        ),
    ]
}

/// The model reads the error and may try something else.
fn divide(Pair { a, b }: Pair) -> Result<f64, &'static str> {
    if b == 0.0 {
        return Err("one cannot divide by zero");
    }
    finite(a / b)
}

/// A tool may also be async.
async fn percent_of(PercentOf { percent, whole }: PercentOf) -> Result<f64, &'static str> {
    finite(percent * whole / 100.0)
}

/// JSON has no infinity.
fn finite(number: f64) -> Result<f64, &'static str> {
    if number.is_finite() {
        Ok(number)
    } else {
        Err("the result is too large")
    }
}
