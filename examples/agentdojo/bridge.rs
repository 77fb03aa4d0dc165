//! The process that serves a suite.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tower_agent::BoxError;
use tower_agent::tool::ToolResponse;

#[derive(Clone, Deserialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Script {
    pub(crate) prompt: String,
    pub(crate) user: Vec<Call>,
    pub(crate) attack: Vec<Call>,
    pub(crate) answer: String,
    pub(crate) attack_answer: String,
}

#[derive(Clone, Deserialize)]
pub(crate) struct ToolSpec {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) parameters: Value,
    pub(crate) trusted: bool,
    pub(crate) action: bool,
    pub(crate) data: Vec<String>,
}

impl ToolSpec {
    /// Returns whether the tool returns nothing that others wrote. A page is read and visited at once.
    pub(crate) fn trusted_result(&self) -> bool {
        self.name != "get_webpage"
    }
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends by itself when its input does; a failure leaves nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clones are the same process.
#[derive(Clone)]
pub(crate) struct Bridge {
    process: Arc<Mutex<Process>>,
    mark: Arc<str>,
}

#[derive(Deserialize)]
struct Tasks {
    user: Vec<String>,
    injection: Vec<String>,
    mark: String,
}

impl Bridge {
    pub(crate) fn start(suite: &str) -> Result<Self, BoxError> {
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/bridge.py");
        let mut child = Command::new(python)
            .args([script, suite])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().ok_or("the bridge has no input")?;
        let stdout = child.stdout.take().ok_or("the bridge has no output")?;
        let process = Process {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        };
        let mut bridge = Self {
            process: Arc::new(Mutex::new(process)),
            mark: Arc::from(""),
        };
        let tasks: Tasks = bridge.ask("tasks", json!({}))?;
        bridge.mark = tasks.mark.into();
        Ok(bridge)
    }

    fn ask<T: DeserializeOwned>(&self, what: &str, with: Value) -> Result<T, BoxError> {
        let mut process = self
            .process
            .lock()
            .map_err(|_| "a run before this one panicked")?;
        writeln!(process.stdin, "{}", json!({ "do": what, "with": with }))?;
        process.stdin.flush()?;
        let mut line = String::new();
        process.stdout.read_line(&mut line)?;
        let mut answer: Value = serde_json::from_str(&line)?;
        if let Some(error) = answer.get("error") {
            return Err(format!("the bridge failed at `{what}`: {error}").into());
        }
        Ok(serde_json::from_value(answer["ok"].take())?)
    }

    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(crate) fn tasks(&self) -> Result<(Vec<String>, Vec<String>), BoxError> {
        let tasks: Tasks = self.ask("tasks", json!({}))?;
        Ok((tasks.user, tasks.injection))
    }

    pub(crate) fn tools(&self) -> Result<Vec<ToolSpec>, BoxError> {
        self.ask("tools", json!({}))
    }

    pub(crate) fn reset(&self, user: &str, injection: Option<&str>) -> Result<Script, BoxError> {
        self.ask(
            "reset",
            json!({ "user_task": user, "injection_task": injection }),
        )
    }

    pub(crate) fn call(&self, name: &str, arguments: &Value) -> Result<ToolResponse, BoxError> {
        let answer: Value = self.ask("call", json!({ "name": name, "arguments": arguments }))?;
        let text = answer["text"].as_str().unwrap_or_default();
        if answer["error"] == json!(true) {
            return Ok(ToolResponse::error(text));
        }
        Ok(ToolResponse::new(text))
    }

    pub(crate) fn check(&self, output: &str) -> Result<(bool, bool), BoxError> {
        let answer: Value = self.ask("check", json!({ "output": output }))?;
        Ok((
            answer["utility"] == json!(true),
            answer["attack"] == json!(true),
        ))
    }
}
