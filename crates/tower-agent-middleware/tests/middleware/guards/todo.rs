//! The list of steps.

use serde_json::{Value, json};
use tower_agent::{Agent, AgentRequest};
use tower_agent_middleware::todo::{KEY, todo_list};
use tower_agent_test::{ScriptedModel, Turn};

use crate::guards::results;

fn write(items: &[(&str, &str)]) -> Value {
    let items = items.iter();
    let items = items.map(|(content, status)| json!({ "content": content, "status": status }));
    json!({ "todos": Value::from_iter(items) })
}

#[tokio::test]
async fn a_list_replaces_the_one_before_and_a_wrong_one_does_not() {
    let good = write(&[("Book", "completed")]);
    let model = ScriptedModel::new([
        Turn::tool(
            "write_todos",
            write(&[("Find", "in_progress"), ("Book", "pending")]),
        ),
        // Of two in one turn the last counts.
        Turn::tool("write_todos", write(&[("Ask", "pending")]))
            .and_tool("write_todos", good.clone()),
        Turn::tool("write_todos", write(&[("Book", "finished")])),
        Turn::from_text("done"),
        Turn::from_text("more"),
    ]);
    let agent = Agent::builder(model).tool(todo_list()).build().unwrap();
    let done = agent.run("?").await.unwrap();
    assert_eq!(done.state().get(KEY).as_ref(), Some(&good["todos"]));
    let refused = results(&done).pop().unwrap();
    assert!(refused.contains("finished"), "{refused}");

    let next = AgentRequest::new("Go on.").with_state(done.state().clone());
    let next = agent.run(next).await.unwrap();
    assert_eq!(next.state().get(KEY).as_ref(), Some(&good["todos"]));
}
