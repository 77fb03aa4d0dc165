//! Servers as child processes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;
use tower_agent::{AgentRequest, Effect, ErrorKind, Resolution, Tool};
use tower_agent_mcp::client::{McpClient, McpClientBuilder};
use tower_agent_mcp::server::McpServer;
use tower_agent_test::{ScriptedModel, Turn};

use crate::serving::clerk;
use crate::support::{LIFECYCLES, agent_with_tools_of, ask, connected, first_result, names};

/// Tells the test below that it is the child.
const CHILD: &str = "TOWER_AGENT_MCP_CHILD";

/// Starts this program again as a server. The test harness prints noise that a client must
/// bear.
fn child() -> McpClientBuilder {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "processes::serves_on_standard_streams",
        "--ignored",
        "--nocapture",
    ]);
    McpClient::child_process({
        command.env(CHILD, "1").stderr(std::process::Stdio::null());
        command
    })
    .name("child")
}

#[tokio::test]
#[ignore = "the process that the other tests start"]
async fn serves_on_standard_streams() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let pid = Tool::function("pid", "Its id.", |_: Value| std::process::id()).effect(Effect::Pure);
    let die = Tool::function("die", "Dies.", |_: Value| -> () { std::process::exit(3) });
    let wait = Tool::function("wait", "Never ends.", async |_: Value| -> () {
        std::future::pending().await
    });
    let large = Tool::function("large", "A long text.", |bytes: usize| "x".repeat(bytes));
    let environment = Tool::function("environment", "Its variables.", |_: Value| {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        names.collect::<Vec<_>>()
    });
    let server = McpServer::builder("child", "1.0.0")
        .agent(clerk().0)
        .tools([pid, die, wait, large, environment])
        .build()
        .unwrap();
    server.serve_stdio().await.unwrap();
}

#[tokio::test]
async fn a_child_process_answers_and_is_started_again_after_its_death() {
    for lifecycle in LIFECYCLES {
        let client = connected(child().lifecycle(lifecycle)).await;
        assert_eq!(
            names(&client).await,
            ["clerk", "die", "environment", "large", "pid", "wait"]
        );
        let first = ask(&client, "pid", json!({})).await.unwrap();
        let error = ask(&client, "die", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection);
        assert_eq!(error.message(), "MCP server `child` closed the connection");
        assert!(!error.is_retryable());
        let second = ask(&client, "pid", json!({})).await.unwrap();
        assert_ne!(first.value(), second.value());
        client.close().await;
    }
}

#[tokio::test]
async fn a_child_process_is_given_a_short_list_of_variables() {
    // Cargo sets it for the tests, so this process has it.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let client = connected(child()).await;
    let seen = ask(&client, "environment", json!({})).await.unwrap();
    let seen: Vec<String> = serde_json::from_str(seen.value().as_str().unwrap()).unwrap();
    let has = |name: &str| seen.iter().any(|seen| seen == name);
    assert!(!has("CARGO_MANIFEST_DIR"), "{seen:?}");
    assert!(has("PATH"), "{seen:?}");
    // What the command sets.
    assert!(has(CHILD), "{seen:?}");
    client.close().await;
}

#[tokio::test]
async fn an_agent_in_a_child_process_asks_and_goes_on() {
    for lifecycle in LIFECYCLES {
        let client = connected(child().lifecycle(lifecycle)).await;
        let model = ScriptedModel::new([
            Turn::tool("clerk", json!({ "request": "Pay." })),
            Turn::from_text("Done."),
        ]);
        let agent = agent_with_tools_of(&client, model).await;
        let paused = agent.run("Pay.").await.unwrap();
        let [asked] = paused.interrupts() else {
            panic!("{:?}", paused.messages())
        };
        let answer = Resolution::resolved(&asked.id, json!({ "approved": true }));
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions([answer]);
        let done = agent.run(request).await.unwrap();
        let result = first_result(&done);
        assert_eq!(result.text(), "I paid 100.");
    }
}

#[tokio::test]
async fn a_child_process_that_dies_in_the_middle_fails_all_its_calls_and_no_others() {
    for lifecycle in LIFECYCLES {
        let client = connected(child().lifecycle(lifecycle)).await;
        let other = connected(child().lifecycle(lifecycle)).await;
        let pid = ask(&other, "pid", json!({})).await.unwrap();
        let waiting = (0..20).map(|_| ask(&client, "wait", json!({})));
        let (ended, died) = futures::join!(
            futures::future::join_all(waiting),
            ask(&client, "die", json!({})),
        );
        for error in ended.into_iter().chain([died]) {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Connection);
        }
        assert_eq!(
            ask(&other, "pid", json!({})).await.unwrap().value(),
            pid.value()
        );
        assert!(ask(&client, "pid", json!({})).await.is_ok());
    }
}

#[tokio::test]
async fn fifty_calls_of_a_child_process_at_once_each_get_their_own_answer() {
    for lifecycle in LIFECYCLES {
        let client = connected(child().lifecycle(lifecycle)).await;
        let calls = (1..=50).map(|bytes| {
            let client = client.clone();
            async move {
                (
                    bytes,
                    ask(&client, "large", json!({ "value": bytes })).await,
                )
            }
        });
        for (bytes, answer) in futures::future::join_all(calls).await {
            assert_eq!(answer.unwrap().value(), &json!("x".repeat(bytes)));
        }
    }
}

#[tokio::test]
async fn a_child_process_that_never_answers_hits_the_timeout_and_is_usable_afterwards() {
    for lifecycle in LIFECYCLES {
        let builder = child().lifecycle(lifecycle);
        let client = builder
            .call_timeout(Duration::from_millis(500))
            .connect()
            .await
            .unwrap();
        let error = ask(&client, "wait", json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        // On a busy machine it may take longer as well.
        while let Err(error) = ask(&client, "pid", json!({})).await {
            assert_eq!(error.kind(), ErrorKind::Timeout);
        }
    }
}

#[tokio::test]
async fn an_answer_of_twenty_megabytes_comes_through_a_pipe() {
    let client = child().connect().await.unwrap();
    let answer = ask(&client, "large", json!({ "value": 20 << 20 }))
        .await
        .unwrap();
    assert_eq!(answer.value().as_str().unwrap().len(), 20 << 20);
}

#[tokio::test]
async fn a_closed_client_leaves_no_process() {
    let client = child().connect().await.unwrap();
    let pid = ask(&client, "pid", json!({})).await.unwrap();
    client.close().await;
    let process = format!("/proc/{}", pid.value().as_str().unwrap());
    assert!(
        !std::path::Path::new("/proc/self").exists() || !std::path::Path::new(&process).exists()
    );
}

#[tokio::test]
async fn a_program_that_is_no_server_fails_to_connect() {
    for program in ["true", "cat"] {
        let builder = McpClient::child_process(Command::new(program));
        let builder = builder.connect_timeout(std::time::Duration::from_millis(500));
        let error = builder.connect().await.unwrap_err();
        assert!(
            matches!(
                error.kind(),
                ErrorKind::Connection | ErrorKind::Protocol | ErrorKind::Timeout
            ),
            "{error}"
        );
        assert!(
            error.message().contains(&format!("MCP server `{program}`")),
            "{error}"
        );
    }
}
