//! A process that is stopped for longer than its lease, as a laptop that sleeps or a machine that
//! is moved: another one goes on, and the first starts no call when it wakes up.
#![cfg(unix)]

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, stdin};
use tower::{Layer, ServiceExt};
use tower_agent::message::{Part, ToolCall};
use tower_agent::{Agent, AgentRequest, BoxError, ErrorKind, ModelRequest, ModelResponse, Tool};
use tower_agent_conversations::{
    ClientInput, ClientMessage, ClientRole, ConversationKey, Refusal, RefusalKind, SessionLayer,
    ThreadRequest, Threads,
};
use tower_agent_durable::Sqlite;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::folder::Folder;

const FOLDER: &str = "TOWER_AGENT_TEST_PAUSED";
const KIND: &str = "TOWER_AGENT_TEST_PAUSED_KIND";
const LEASE: Duration = Duration::from_secs(1);

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

#[derive(Clone)]
struct Line(Arc<str>);

impl ClientMessage for Line {
    type Error = Refusal;

    fn id(&self) -> &Arc<str> {
        &self.0
    }

    fn role(&self) -> ClientRole<'_> {
        ClientRole::User
    }

    fn parts(&self, _: usize) -> Result<Vec<Part>, Refusal> {
        Ok(vec![Part::from_text("Look twice.")])
    }
}

/// Makes a run, and fails as it does.
async fn make(kind: &str, agent: Agent, store: Sqlite, run: &str) -> Result<(), BoxError> {
    if kind == "session" {
        let chat = SessionLayer::new(store).lease(LEASE).layer(agent);
        let request = AgentRequest::new("Look twice.").with_run_id(run);
        chat.oneshot(key().request(request)).await?;
        return Ok(());
    }
    let threads = Threads::new(store).lease(LEASE).allow_partial_history();
    let input = ClientInput::new(run, vec![Line(format!("m of {run}").into())]);
    let chat = threads
        .layer(agent)
        .oneshot(ThreadRequest::new(key(), input));
    chat.await?.response().await?;
    Ok(())
}

/// The program: a run that is in its tool until it is told to go on.
#[test]
fn a_process_that_is_stopped() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let kind = std::env::var(KIND).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let made = runtime.block_on(async {
        let store = Sqlite::open(folder.join("a.db")).await.unwrap();
        make(&kind, looking(folder.clone()), store, "run 1").await
    });
    write(&folder, if made.is_ok() { "done" } else { "failed" });
    // The test harness would fail: nobody reads what it prints.
    std::process::exit(0);
}

fn write(folder: &Path, line: &str) {
    let calls = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("calls"));
    writeln!(calls.unwrap(), "{line}").unwrap();
}

/// An agent that writes down each call.
fn looking(folder: PathBuf) -> Agent {
    let calls = folder.clone();
    let model = tower::service_fn(move |_: ModelRequest| {
        write(&calls, "model");
        let call = ToolCall::new("c", "look", json!({}));
        async { Ok::<_, BoxError>(ModelResponse::from_tool_calls([call])) }
    });
    let look = Tool::function("look", "Looks.", move |_: Value| {
        write(&folder, "look");
        println!("\nlooks");
        async {
            let mut line = String::new();
            let mut told = tokio::io::BufReader::new(stdin());
            told.read_line(&mut line).await.unwrap();
            "seen"
        }
    });
    Agent::builder(model).tool(look).build().unwrap()
}

struct Process(Child);

impl Process {
    fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([name, &self.0.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, unless the test fails.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn stops(kind: &str) {
    let folder = Folder::new(&format!("paused-{kind}"));
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "paused::a_process_that_is_stopped",
            "--nocapture",
        ])
        .env(FOLDER, folder.file(""))
        .env(KIND, kind)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let output = BufReader::new(process.0.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "looks"));
    process.signal("-STOP");

    // Another process has it as soon as the lease is over.
    let store = Sqlite::open(folder.file("a.db")).await.unwrap();
    loop {
        let model = ScriptedModel::new([Turn::from_text("I have looked.")]);
        let agent = Agent::builder(model).build().unwrap();
        match make(kind, agent, store.clone(), "run 2").await {
            Ok(()) => break,
            Err(busy) => assert!(is_busy(&busy), "{busy}"),
        }
    }
    process.signal("-CONT");
    let mut told = process.0.stdin.take().unwrap();
    // It may have seen that its lease is over, and have ended, before it is told to go on.
    match told.write_all(b"go on\n") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        told => told.unwrap(),
    }
    assert!(process.0.wait().unwrap().success());
    let calls = std::fs::read_to_string(folder.file("calls")).unwrap();
    assert_eq!(calls, "model\nlook\nfailed\n", "{kind}");
    store.close().await;
}

fn is_busy(error: &BoxError) -> bool {
    let is_session = error.downcast_ref::<tower_agent::Error>();
    let is_thread = error.downcast_ref::<Refusal>();
    is_session.is_some_and(|error| error.kind() == ErrorKind::Conflict)
        || is_thread.is_some_and(|refusal| refusal.kind == RefusalKind::Busy)
}

#[tokio::test]
async fn a_run_whose_process_was_stopped_beyond_its_lease_starts_nothing_more() {
    for kind in ["session", "thread"] {
        stops(kind).await;
    }
}
