//! A program of LangChain's middleware, ported: hooks that unwind, a limit of one tool, a list of
//! steps, an address that is hidden, and a person who answers in place of a tool. The page
//! "migration" of the guide has each middleware and its counterpart.
//!
//! `cargo run --example from_langchain`

use serde_json::json;
use tower_agent::callback::{Bundle, after_model, before_model, wrap_model};
use tower_agent::compat::Semantics;
use tower_agent::{Agent, AgentRequest, BoxError, Resolution, Tool};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Budget, Limits, OnExceeding};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_middleware::todo::{KEY, todo_list};
use tower_agent_test::{ScriptedModel, Turn};

/// A middleware with `before_model`, `wrap_model_call` and `after_model`.
fn logged(name: &'static str) -> Bundle {
    Bundle::new()
        .on_model(before_model(move |_| println!("{name} before")))
        .model_layer(wrap_model(move |request, mut next| {
            println!("{name} around");
            async move { next.run(request).await }
        }))
        .on_model(after_model(move |_, _| println!("{name} after")))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let search = || Turn::tool("search", json!({ "value": "fox" }));
    let steps = json!({ "todos": [{ "content": "ask", "status": "in_progress" }] });
    let model = ScriptedModel::new([
        Turn::tool("write_todos", steps),
        search(),
        search(),
        Turn::tool("mail", json!({ "value": "jo@example.com" })),
        Turn::from_text("I wrote to jo@example.com."),
    ]);
    let once = Limits::new()
        .tool_calls(1)
        .on_exceeding(OnExceeding::Refuse);
    let agent = Agent::builder(model)
        .semantics(Semantics::langchain())
        .tool(Tool::function("search", "Searches.", |what: String| {
            format!("a {what}")
        }))
        .tool(Tool::function("mail", "Writes a mail.", |to: String| {
            format!("sent to {to}")
        }))
        .callbacks(logged("first"))
        .callbacks(logged("second"))
        // ModelRetryMiddleware
        .model_layer(CallRetryLayer::new())
        // TodoListMiddleware
        .tool(todo_list())
        // ToolCallLimitMiddleware(tool_name="search", run_limit=1)
        .callbacks(Budget::new(once).of_tools(["search"]))
        // PIIMiddleware("email", apply_to_output=True): arguments are left alone.
        .callbacks(Redact::new([Detector::email()])?.keep_arguments())
        // HumanInTheLoopMiddleware(interrupt_on={"mail": {"allowed_decisions": ["respond"]}})
        .on_tool(Approval::of_tools(["mail"]).allow_answers())
        .build()?;

    let paused = agent.run("Find a fox, and write to Jo.").await?;
    let [question] = paused.interrupts() else {
        return Err("one call waits".into());
    };
    let answer = Decision::Respond(json!("I have told Jo myself."));
    let answer = Resolution::resolved(&question.id, answer);
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
    let response = agent
        .run(request.with_state(paused.state().clone()))
        .await?;

    for result in response
        .messages()
        .iter()
        .flat_map(|message| message.tool_results())
    {
        println!("{}: {}", result.name, result.text());
    }
    println!("{}", response.text());
    assert_eq!(response.text(), "I wrote to [email].");
    assert!(response.state().get(KEY).is_some());
    Ok(())
}
