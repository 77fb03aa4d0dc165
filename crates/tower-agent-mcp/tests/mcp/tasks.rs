//! Calls that a server answers with a task.

use std::sync::{Arc, Mutex};

use rmcp::model::*;
use serde_json::json;
use tower_agent::{AgentRequest, ErrorKind, Resolution};
use tower_agent_mcp::client::{Lifecycle, McpClient};
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::{Server, TaskRequest, agent_with_tools_of, ask, first_result};

fn task(payload: TaskPayload) -> DetailedTask {
    let now = "2026-07-28T00:00:00Z";
    let task = Task::new("t1", TaskStatus::Working, now, now).with_poll_interval_ms(50);
    DetailedTask::new(task, payload)
}

fn completed(text: &str) -> TaskPayload {
    let result = CallToolResult::success(vec![ContentBlock::text(text)]);
    let serde_json::Value::Object(result) = json!(result) else {
        unreachable!()
    };
    TaskPayload::Completed { result }
}

/// Answers each poll with the next state; the last stays.
fn server(states: Vec<TaskPayload>) -> (Server, Arc<Mutex<Vec<String>>>) {
    let states = Mutex::new(states);
    let log = Arc::<Mutex<Vec<String>>>::default();
    let logs = log.clone();
    let server =
        Server::new(async |_, _| Ok(CreateTaskResult::new(task(TaskPayload::Working).task).into()));
    let server = server.on_task(move |request| {
        let mut log = logs.lock().unwrap();
        match request {
            TaskRequest::Get => {
                log.push("get".to_owned());
                let mut states = states.lock().unwrap();
                let next = states[0].clone();
                if states.len() > 1 {
                    states.remove(0);
                }
                return Ok(Some(task(next)));
            }
            TaskRequest::Update(answers) => log.push(json!(answers).to_string()),
            TaskRequest::Cancel => log.push("cancel".to_owned()),
        }
        Ok(None)
    });
    (server, log)
}

async fn connect(server: &Server) -> McpClient {
    server.connect(Lifecycle::Discover).await
}

#[tokio::test(start_paused = true)]
async fn a_task_is_polled_until_it_is_completed() {
    let (server, log) = server(vec![
        TaskPayload::Working,
        TaskPayload::Working,
        completed("done"),
    ]);
    let client = connect(&server).await;
    let start = tokio::time::Instant::now();
    assert_eq!(
        ask(&client, "echo", json!({})).await.unwrap().value(),
        "done"
    );
    assert_eq!(*log.lock().unwrap(), ["get", "get", "get"]);
    assert_eq!(start.elapsed().as_millis(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_fails_its_call() {
    let serde_json::Value::Object(error) = json!({ "code": -32603, "message": "no luck" }) else {
        unreachable!()
    };
    let (server, _) = server(vec![TaskPayload::Failed { error }]);
    let error = ask(&connect(&server).await, "echo", json!({}))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Tool);
    assert!(error.message().contains("no luck"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_cancels_its_task() {
    let (server, log) = server(vec![TaskPayload::Working]);
    let client = connect(&server).await;
    let call = ask(&client, "echo", json!({}));
    let dropped = tokio::time::timeout(std::time::Duration::from_millis(120), call).await;
    assert!(dropped.is_err());
    while log.lock().unwrap().last().unwrap() != "cancel" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_of_a_task_interrupts_the_run_once_however_long_it_is_shown() {
    let schema = ElicitationSchema::builder()
        .required_string("name")
        .build()
        .unwrap();
    let question = ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "Who?".to_owned(),
        requested_schema: schema,
    };
    let request = InputRequest::Elicitation(ElicitRequest::new(question));
    let asks = TaskPayload::InputRequired {
        input_requests: [("who".to_owned(), request)].into(),
    };
    let (server, log) = server(vec![
        TaskPayload::Working,
        asks.clone(),
        asks.clone(),
        asks,
        completed("thanks"),
    ]);
    let client = connect(&server).await;
    let model = ScriptedModel::new([Turn::tool("echo", json!({})), Turn::from_text("Done.")]);
    let agent = agent_with_tools_of(&client, model).await;
    let paused = agent.run("Go.").await.unwrap();
    let answer = Resolution::resolved(&paused.interrupts()[0].id, json!({ "name": "Ada" }));
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
    let done = agent.run(request).await.unwrap();
    let result = first_result(&done);
    assert_eq!(result.text(), "thanks");
    let answers = r#"{"who":{"action":"accept","content":{"name":"Ada"}}}"#;
    assert_eq!(
        *log.lock().unwrap(),
        ["get", "get", answers, "get", "get", "get"]
    );
}
