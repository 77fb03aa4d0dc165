//! The process that serves the suites of AgentDojo.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tower_agent::BoxError;

/// A tool call of a task.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Call {
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
}

/// The calls of a user's task and of an attack.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Plan {
    pub(crate) prompt: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) answer: String,
    pub(crate) attack: Option<Attack>,
}

/// The aim of an attacker with a model that has read the mark.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attack {
    pub(crate) mark: String,
    pub(crate) calls: Vec<Call>,
    pub(crate) answer: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Suite {
    pub(crate) tools: Vec<SuiteTool>,
    pub(crate) users: Vec<String>,
    pub(crate) attacks: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct SuiteTool {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) parameters: Value,
}

/// The result of a tool, or the text of its error.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    Result(Value),
    Error(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ok(Value),
    Failed(String),
}

struct Process {
    // Is killed on drop.
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// The process. It has one run at a time. Clones are the same process.
#[derive(Clone)]
pub(crate) struct Bridge(Arc<Mutex<Process>>);

/// Returns the Python that has AgentDojo.
pub(crate) fn python() -> PathBuf {
    folder().join(".venv/bin/python")
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Bridge {
    pub(crate) fn start() -> Result<Self, BoxError> {
        let mut child = Command::new(python())
            .arg(folder().join("bridge.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", python().display()))?;
        let input = child.stdin.take().ok_or("the bridge has no input")?;
        let output = child.stdout.take().ok_or("the bridge has no output")?;
        Ok(Self(Arc::new(Mutex::new(Process {
            _child: child,
            input,
            output: BufReader::new(output).lines(),
        }))))
    }

    async fn request<T: DeserializeOwned>(&self, request: Value) -> Result<T, BoxError> {
        let mut process = self.0.lock().await;
        process
            .input
            .write_all(format!("{request}\n").as_bytes())
            .await?;
        process.input.flush().await?;
        let line = process.output.next_line().await?;
        let line = line.ok_or("the bridge has ended")?;
        match serde_json::from_str(&line)? {
            Answer::Ok(value) => Ok(serde_json::from_value(value)?),
            Answer::Failed(error) => Err(format!("the bridge failed at {request}: {error}").into()),
        }
    }

    pub(crate) async fn catalogue(&self) -> Result<BTreeMap<String, Suite>, BoxError> {
        self.request(json!({ "op": "catalogue" })).await
    }

    /// Begins a run of a user's task, with a mark wherever an attacker can write, or without.
    pub(crate) async fn begin(
        &self,
        suite: &str,
        user: &str,
        attack: Option<&str>,
    ) -> Result<Plan, BoxError> {
        let request = json!({ "op": "start", "suite": suite, "user": user, "attack": attack });
        self.request(request).await
    }

    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> Result<Outcome, BoxError> {
        let request = json!({ "op": "call", "tool": tool, "arguments": arguments });
        self.request(request).await
    }

    /// Returns whether the attack has succeeded, or in a run without one the user's task is done.
    pub(crate) async fn judge(&self, answer: &str) -> Result<bool, BoxError> {
        self.request(json!({ "op": "judge", "answer": answer }))
            .await
    }
}
