//! The official SDKs, the inspector and the reference servers, which nobody here wrote.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use test_support::process::{Process, is_installed};
use tokio::process::Command;
use tower::ServiceExt;
use tower_agent::{Agent, Error, ErrorKind, Tool};
use tower_agent_mcp::client::{Lifecycle, McpClient};
use tower_agent_mcp::server::McpServer;
use tower_agent_providers::{HttpClient, RequestBody};
use tower_agent_test::{ScriptedModel, Turn};

use crate::http::Http;
use crate::installed::{installed, node};
use crate::serving::clerk;
use crate::support::{LIFECYCLES, ask, connected, names};

/// What the clients use: a helper, a tool that fails, one that pays, and one that answers with its
/// argument.
async fn server() -> (Http, Arc<AtomicUsize>) {
    let model = ScriptedModel::always(Turn::from_text("Good day to you."));
    let helper = Agent::builder(model)
        .name("helper")
        .description("Helps.")
        .build()
        .unwrap();
    let (clerk, paid) = clerk();
    let fails = Tool::function("fails", "Fails.", |_: Value| {
        let source = Error::new(ErrorKind::Other, "postgres://user:hunter2@db failed");
        Err::<(), _>(source)
    });
    let same = Tool::function("same", "Answers with its argument.", |value: u32| {
        value.to_string()
    });
    let server = McpServer::builder("test", "1.0.0")
        .agent(helper)
        .agent(clerk)
        .tools([fails, same])
        .build()
        .unwrap();
    let app = Router::new().route_service("/mcp", server.into_http());
    (Http::serve(app).await, paid)
}

/// Runs a client of the server, and checks what it has seen.
async fn assert_understood(program: &Path, script: &str, mode: &str) {
    let (http, paid) = server().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/servers/clients")
        .join(script);
    let output = Command::new(program)
        .arg(&script)
        .args([format!("http://{}/mcp", http.address), mode.to_owned()])
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let seen = String::from_utf8_lossy(&output.stdout);
    let last = seen.lines().next_back().unwrap_or_default();
    let seen: Value = serde_json::from_str(last).unwrap_or_else(|_| panic!("{seen}\n{errors}"));
    let of = format!("{script:?} {mode}: {seen}");
    assert_eq!(
        seen["tools"],
        json!(["clerk", "fails", "helper", "same"]),
        "{of}"
    );
    assert_eq!(seen["asked"], "Good day to you.", "{of}");
    assert_eq!(seen["progress"], "Good day to you.", "{of}");
    assert_eq!(seen["failed"][0], true, "{of}");
    // What an error quotes is for nobody's client.
    assert!(!of.contains("hunter2"), "{of}");
    assert_eq!(seen["paid"], "I paid 100.", "{of}");
    assert_ne!(seen["declined"], "I paid 100.", "{of}");
    assert_eq!(paid.load(Ordering::SeqCst), 1, "{of}");
    let many: Vec<String> = (0..50).map(|n: u32| n.to_string()).collect();
    assert_eq!(seen["many"], json!(many), "{of}");
    assert_eq!(seen["unknown"], true, "{of}");
}

#[tokio::test]
async fn the_typescript_sdk_understands_a_served_agent() {
    if installed("@modelcontextprotocol/sdk/package.json").is_none() {
        return;
    }
    assert_understood(&node(), "typescript_1.mjs", "").await;
    for mode in ["auto", "legacy"] {
        assert_understood(&node(), "typescript_2.mjs", mode).await;
    }
}

fn python() -> Option<PathBuf> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/.venv/bin/python");
    is_installed("the Python SDK", &python, ".ci/servers").then_some(python)
}

#[tokio::test]
async fn the_python_sdk_understands_a_served_agent() {
    let Some(python) = python() else { return };
    for mode in ["auto", "legacy"] {
        assert_understood(&python, "python.py", mode).await;
    }
}

#[tokio::test]
async fn results_above_its_limits_reach_the_python_sdk() {
    let Some(python) = python() else { return };
    let large = Tool::function("large", "Says much.", |size: usize| "x".repeat(size));
    let server = McpServer::builder("large", "1.0.0")
        .tool(large)
        .build()
        .unwrap();
    let app = Router::new().route_service("/mcp", server.into_http());
    let http = Http::serve(app).await;
    for mode in ["auto", "legacy"] {
        let script = "tests/servers/clients/large.py";
        let output = Command::new(&python)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
            .args([&format!("http://{}/mcp", http.address), mode])
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let seen = String::from_utf8_lossy(&output.stdout);
        assert_eq!(seen, "65536\n1048576\n5242880\n", "{mode}: {errors}");
    }
}

#[tokio::test]
async fn servers_of_the_python_sdk_are_understood_in_both_lifecycles() {
    let Some(python) = python() else { return };
    for lifecycle in LIFECYCLES {
        let mut command = Command::new(&python);
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/clients/server.py"))
            .stderr(Stdio::null());
        let client = McpClient::child_process(command)
            .lifecycle(lifecycle)
            .root("/srv");
        let client = connected(client).await;
        assert_eq!(names(&client).await, ["roots", "word", "words"]);
        // Structured content beside the text: the model reads the text alone.
        let word = ask(&client, "word", json!({ "of": "a" })).await.unwrap();
        assert_eq!(word.parts().len(), 1);
        assert_eq!(word.value(), &json!({ "result": "a" }));
        let words = ask(&client, "words", json!({})).await.unwrap();
        assert_eq!(words.value(), &json!({ "result": ["a", "b"] }));
        // Its later lifecycle has another way to ask for them.
        if lifecycle == Lifecycle::Initialize {
            let roots = ask(&client, "roots", json!({})).await.unwrap();
            let roots = format!("{:?}", roots.parts());
            assert!(roots.contains("file:///srv"), "{roots}");
        }

        let resources = client.resources().await.unwrap();
        assert_eq!(resources[0].uri, "notes://today");
        let templates = client.resource_templates().await.unwrap();
        assert_eq!(templates[0].uri_template, "notes://{day}/of");
        let note = client.read_resource("notes://today").await.unwrap();
        assert_eq!(note[0].as_text(), Some("Buy milk."));
        let note = client.read_resource("notes://monday/of").await.unwrap();
        assert_eq!(note[0].as_text(), Some("Of monday."));
        let prompts = client.prompts().await.unwrap();
        assert_eq!(prompts[0].name, "praise");
        let messages = client.prompt("praise", [("style", "verse")]).await.unwrap();
        assert_eq!(messages[0].text(), "Praise in verse.");
        client.close().await;
    }
}

#[tokio::test]
async fn the_inspector_lists_and_calls_the_tools_of_a_served_agent() {
    let Some(inspector) =
        installed("@modelcontextprotocol/inspector/clients/launcher/build/index.js")
    else {
        return;
    };
    let (http, _) = server().await;
    let run = async |arguments: &[&str]| {
        let output = Command::new(node())
            .arg(&inspector)
            .args(["--cli", &format!("http://{}/mcp", http.address)])
            .args(["--transport", "http"])
            .args(arguments)
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        serde_json::from_str::<Value>(&said).unwrap_or_else(|_| panic!("{said}\n{errors}"))
    };
    let listed = run(&["--method", "tools/list"]).await;
    assert_eq!(listed["tools"].as_array().unwrap().len(), 4);
    let called = [
        "--method",
        "tools/call",
        "--tool-name",
        "same",
        "--tool-arg",
        "value=7",
    ];
    assert_eq!(run(&called).await["content"][0]["text"], "7");
}

/// A reference server that is a child process.
async fn reference(package: &str, arguments: &[&Path]) -> Option<McpClient> {
    let program = installed(&format!("@modelcontextprotocol/{package}/dist/index.js"))?;
    let mut command = Command::new(node());
    command.arg(program).args(arguments).stderr(Stdio::null());
    // Away from the packages: it writes its files where it stands.
    command.current_dir(env!("CARGO_TARGET_TMPDIR"));
    Some(connected(McpClient::child_process(command).root(env!("CARGO_TARGET_TMPDIR"))).await)
}

#[tokio::test]
async fn the_filesystem_server_reads_and_writes_in_its_directory_alone() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-filesystem");
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    let Some(client) = reference("server-filesystem", &[]).await else {
        return;
    };
    // It was given no directory, and asks for the client's roots.
    let file = directory.join("note.txt");
    let path = file.to_str().unwrap();
    let content = json!({ "path": path, "content": "Buy milk." });
    let mut written = ask(&client, "write_file", content.clone()).await.unwrap();
    while written.is_error() {
        // It learns the roots after it has answered that it is there.
        tokio::task::yield_now().await;
        written = ask(&client, "write_file", content.clone()).await.unwrap();
    }
    let read = ask(&client, "read_text_file", json!({ "path": path }))
        .await
        .unwrap();
    // The same is in the structured content, and is read once.
    assert_eq!(read.parts().len(), 1);
    assert_eq!(read.parts()[0].as_text(), Some("Buy milk."));
    let outside = ask(&client, "read_text_file", json!({ "path": "/etc/passwd" }))
        .await
        .unwrap();
    assert!(outside.is_error(), "{outside:?}");
    assert!(names(&client).await.len() > 10);
}

#[tokio::test]
async fn the_memory_server_remembers() {
    let Some(client) = reference("server-memory", &[]).await else {
        return;
    };
    let entity = json!({ "name": "ann", "entityType": "person", "observations": ["likes tea"] });
    let created = ask(&client, "create_entities", json!({ "entities": [entity] })).await;
    assert!(!created.unwrap().is_error());
    let found = ask(&client, "search_nodes", json!({ "query": "tea" }))
        .await
        .unwrap();
    assert!(format!("{:?}", found.parts()).contains("ann"), "{found:?}");
}

/// A server of the official SDK whose sessions can be expired.
fn sessions_of_the_typescript_sdk(port: u16, mode: &str) -> std::process::Command {
    let script = "tests/servers/clients/sessions.mjs";
    let mut command = std::process::Command::new(node());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
    command.args([&port.to_string(), mode]);
    command
}

#[tokio::test]
async fn a_session_that_the_typescript_sdk_has_forgotten_begins_again() {
    if installed("@modelcontextprotocol/sdk/package.json").is_none() {
        return;
    }
    // It closes the stream of a session that has expired, leaves it open, or never had one.
    for mode in ["closes", "leaves open", "no stream"] {
        let server = Process::start("listening", |port| {
            sessions_of_the_typescript_sdk(port, mode)
        });
        let url = format!("http://{}", server.address);
        let http = HttpClient::new().unwrap();
        let client = McpClient::http(format!("{url}/mcp"), http.clone())
            .lifecycle(Lifecycle::Initialize)
            .call_timeout(Duration::from_secs(20));
        let client = connected(client).await;
        for count in 1..4 {
            let counted = ask(&client, "count", json!({})).await;
            assert_eq!(
                counted.expect(mode).value(),
                &json!(count.to_string()),
                "{mode}"
            );
            let expire = axum::http::Request::get(format!("{url}/expire"));
            let expire = expire.body(RequestBody::from(Bytes::new())).unwrap();
            let begun = http.clone().oneshot(expire).await.unwrap().into_body();
            let begun = begun.collect().await.unwrap().to_bytes();
            assert_eq!(begun, count.to_string(), "{mode}");
        }
    }
}

#[tokio::test]
async fn a_server_of_the_typescript_sdk_that_was_started_again_begins_a_new_session() {
    if installed("@modelcontextprotocol/sdk/package.json").is_none() {
        return;
    }
    for mode in ["closes", "no stream"] {
        let server = Process::start("listening", |port| {
            sessions_of_the_typescript_sdk(port, mode)
        });
        let port = server.address.port();
        let url = format!("http://{}/mcp", server.address);
        let client = McpClient::http(url, HttpClient::new().unwrap())
            .lifecycle(Lifecycle::Initialize)
            .call_timeout(Duration::from_secs(20));
        let client = connected(client).await;
        assert_eq!(ask(&client, "count", json!({})).await.unwrap().value(), "1");
        drop(server);
        let _server = Process::start("listening", |_| sessions_of_the_typescript_sdk(port, mode));
        // A call on the connection that broke has failed before the server had it.
        let mut counted = ask(&client, "count", json!({})).await;
        if counted.is_err() {
            counted = ask(&client, "count", json!({})).await;
        }
        assert_eq!(counted.expect(mode).value(), "1", "{mode}");
    }
}
