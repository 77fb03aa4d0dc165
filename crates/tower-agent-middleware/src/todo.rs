//! A list of steps that a model keeps while it works.
//!
//! ```text
//! todo_list() -> Tool
//! ```
//!
//! The tool `write_todos` replaces the list, which is [`todos`](KEY) in the session's
//! [state](tower_agent::RunContext::state): front ends that show the state see each change, and a
//! later run of the session goes on with it. The tool's description tells the model when to use it.
//!
//! ```
//! use serde_json::json;
//! use tower_agent::Agent;
//! use tower_agent_middleware::todo::{KEY, todo_list};
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower_agent::BoxError> {
//! let todos = json!([
//!     { "content": "Find a hotel", "status": "in_progress" },
//!     { "content": "Book it", "status": "pending" },
//! ]);
//! let model = ScriptedModel::new([
//!     Turn::tool("write_todos", json!({ "todos": todos })),
//!     Turn::from_text("I am looking for a hotel."),
//! ]);
//! let agent = Agent::builder(model).tool(todo_list()).build()?;
//!
//! let response = agent.run("Book a hotel in Oslo.").await?;
//! assert_eq!(response.state().get(KEY), Some(todos));
//! # Ok(())
//! # }
//! ```
//!
//! A list with an unknown status is refused, and the model reads why. Of several calls in one turn
//! the last one counts.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::Tool;
use tower_agent::call::Request;
use tower_agent::tool::{Effect, ToolResponse};

use crate::own_tool::{declaration, object, own_tool};

/// The key of the list in the state.
pub const KEY: &str = "todos";

/// A step of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Todo {
    /// The step, in words.
    pub content: String,
    /// Its progress.
    pub status: TodoStatus,
}

/// The progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TodoStatus {
    /// Not begun.
    Pending,
    /// Begun.
    InProgress,
    /// Done.
    Completed,
}

#[derive(Deserialize)]
struct Todos {
    todos: Vec<Todo>,
}

/// Returns the tool `write_todos`. See the [module](self).
pub fn todo_list() -> Tool {
    let item = object(json!({
        "content": { "type": "string" },
        "status": { "type": "string", "enum": ["pending", "in_progress", "completed"] },
    }));
    let declaration = declaration(
        "write_todos",
        "Writes your list of steps for a task that takes three or more; the list replaces the one \
         before it. Mark a step as in_progress before you begin it, and as completed as soon as it \
         is done. Do not use it for a task of one or two steps, and call it once at a time.",
        json!({ "todos": { "type": "array", "items": item } }),
    );
    // It writes, and the same again changes nothing.
    let declaration = declaration.with_effect(Effect::Idempotent);
    own_tool(declaration, |Todos { todos }, request| {
        let list: Value = json!(todos);
        let answer = format!("The list is now {list}");
        request.context().state().set(KEY, list);
        ToolResponse::new(answer)
    })
}
