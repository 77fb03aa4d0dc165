/// The name of the [custom event](tower_agent::stream::EventKind::Custom) that reports the progress
/// of a call: of a server's tool, and of a tool that is served.
///
/// Its value has the field `progress`, a number that grows, and may have `total` and `message`. The
/// progress of a server's tool has also the field `tool`.
///
/// ```
/// use serde_json::{Value, json};
/// use tower_agent::{Request, Tool, ToolRequest};
/// use tower_agent_mcp::PROGRESS;
///
/// let copy = Tool::function_with("copy", "Copies.", async |_: Value, call: ToolRequest| {
///     call.context().emit(PROGRESS, json!({ "progress": 1, "total": 2 })).await;
///     "copied"
/// });
/// # drop(copy);
/// ```
pub const PROGRESS: &str = "mcp.progress";
