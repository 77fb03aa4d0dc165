//! A process is killed by the system in a fork of a run: the run, its stored conversation and its
//! record are whole, and nothing is paid twice.
#![cfg(unix)]

use std::fs::{OpenOptions, read_to_string};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tower::{Layer, ServiceExt};
use tower_agent::message::ToolCall;
use tower_agent::{Agent, Effect, ModelResponse, Tool};
use tower_agent_console::Console;
use tower_agent_conversations::{ConversationKey, Session, SessionLayer};
use tower_agent_durable::Sqlite;
use tower_agent_test::{ScriptedModel, Turn};

use crate::console::get;
use crate::support::folder::Folder;

const FOLDER: &str = "TOWER_AGENT_TEST_KILLED_FORKS";

fn key() -> ConversationKey {
    ConversationKey::new("shop", "ada", "1")
}

/// An agent that looks and pays, once. A look stops where the process is to be killed.
fn agent(console: &Console, folder: &Path, stops: &Arc<AtomicBool>) -> Agent {
    let model = ScriptedModel::always(Turn::function(|request| {
        let last = request.messages().last();
        if last.is_some_and(|last| last.tool_results().next().is_some()) {
            return Ok(ModelResponse::from_text("Paid."));
        }
        let call = |name: &str| ToolCall::new(name, name, json!({ "value": 5 }));
        Ok(ModelResponse::from_tool_calls([call("look"), call("pay")]))
    }));
    let stops = stops.clone();
    let look = Tool::function("look", "Looks.", move |_: Value| {
        let stops = stops.load(Ordering::Relaxed);
        async move {
            if stops {
                println!("\n#stops");
                std::future::pending::<()>().await;
            }
            "seen"
        }
    });
    let paid = folder.join("paid");
    let pay = Tool::function("pay", "Pays.", move |sum: u32| {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&paid)
            .unwrap();
        writeln!(file, "{sum}").unwrap();
        "paid"
    });
    Agent::builder(model)
        .name("clerk")
        .tool(look.effect(Effect::Pure))
        .tool(pay)
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

/// The program: a run in a session, and then a fork of it.
#[test]
fn a_process_that_forks() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let database = Sqlite::open(folder.join("agent.db")).await.unwrap();
        let console = Console::new().stored_in(database.clone()).record_content();
        let stops = Arc::default();
        let agent = agent(&console, &folder, &stops);
        let sessions = SessionLayer::new(database).layer(agent.clone());
        let request = key().request("Pay 5.").with_run_id("r");
        sessions.oneshot(request).await.unwrap();
        assert_eq!(console.flush().await, 0);
        stops.store(true, Ordering::Relaxed);
        agent
            .run(console.fork("r", 0).await.unwrap())
            .await
            .unwrap();
    });
    println!("\n#ended");
}

#[tokio::test]
async fn a_process_that_is_killed_in_a_fork_leaves_the_run_whole() {
    let folder = Folder::new("killed-fork");
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "killed_forks::a_process_that_forks",
            "--nocapture",
        ])
        .env(FOLDER, folder.file(""))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(process.stdout.take().unwrap());
    let at = output.lines().map(Result::unwrap);
    let at = at.into_iter().find(|line| line.starts_with('#'));
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(at.as_deref(), Some("#stops"));

    let paid = || read_to_string(folder.file("paid")).unwrap();
    assert_eq!(paid(), "5\n", "the fork was answered from the record");
    let database = Sqlite::open(folder.file("agent.db")).await.unwrap();
    let session = Session::load(&database, &key()).await.unwrap().unwrap();
    assert_eq!(session.checkpoint.messages.len(), 5);
    assert_eq!(session.checkpoint.messages.open_calls().count(), 0);
    // The fork had not ended, and is there as far as it was written.
    let console = Console::new().stored_in(database.clone());
    let (_, page) = get(&console, "/api/runs").await;
    let runs = page["runs"].as_array().unwrap();
    let (ended, others): (Vec<_>, Vec<_>) =
        runs.iter().partition(|run| run["status"] == "completed");
    let is_fork = |run: &&Value| run["status"] == "unfinished" && run["fork_of"]["step"] == 0;
    assert!(others.iter().all(is_fork), "{page}");
    let [run] = ended[..] else {
        panic!("one run that has ended: {page}");
    };
    assert_eq!(
        (&run["model_calls"], &run["tool_calls"]),
        (&json!(2), &json!(2))
    );

    let agent = agent(&console, &folder.file(""), &Arc::default());
    let sessions = SessionLayer::new(database).layer(agent);
    let request = key().request("And again.").with_run_id("r2");
    let response = sessions.oneshot(request).await.unwrap();
    assert_eq!(response.text(), "Paid.");
    assert_eq!(paid(), "5\n5\n");
}
