//! Where callbacks keep their data, and what they know of the run: values, state, extensions, the
//! context's fields.

mod context;
mod extensions;
mod of_run;
mod requests;
mod state;
mod values;

use serde_json::{Value, json};
use tower_agent::Tool;
use tower_agent_test::Turn;

pub(crate) fn echo() -> Tool {
    Tool::function("echo", "Says it again.", |value: Value| value)
}

/// A turn that calls the tool so many times at once, with 0, 1 and so on.
pub(crate) fn calls(tool: &str, count: usize) -> Turn {
    (1..count).fold(Turn::tool(tool, json!(0)), |turn, n| {
        turn.and_tool(tool, json!(n))
    })
}
