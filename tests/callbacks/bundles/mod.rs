//! Callbacks given together: `Hooks`, `Bundle`, lists without an agent, one callback in several
//! places; and where those of an agent, its tree and a run stand.

mod edges;
mod hooks;
mod idle;
mod layers;
mod lists;
mod order;

use serde_json::Value;
use tower_agent::Tool;
use tower_agent::callback::Bundle;

use test_support::logger::Logger;
use test_support::trace::Trace;

pub(crate) fn echo() -> Tool {
    Tool::function("echo", "Says it again.", |value: Value| value)
}

/// Callbacks for every call that write down when they are asked.
pub(crate) fn logs(name: &'static str, trace: &Trace) -> Bundle {
    let logger = Logger::new(name, trace);
    Bundle::new()
        .on_agent(logger.clone())
        .on_model(logger.clone())
        .on_tool(logger)
}
