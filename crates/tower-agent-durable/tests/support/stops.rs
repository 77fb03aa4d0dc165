//! A process that stops at a point of an answer, to be killed there.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use tower_agent::callback::{before_agent, before_model};
use tower_agent::{AgentBuilder, AgentRequest, Message, ModelRequest};

use super::answers::{Case, Paid, Payment, clerk};

/// A point at which a process is killed that takes an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Point {
    /// It has the answer, and its run has not begun.
    Given,
    /// The agent goes on with the answer.
    Taken,
    /// The tool is about to pay.
    Before,
    /// The tool has paid.
    After,
    /// The model is asked with the result.
    Result,
}

impl Point {
    pub(crate) const ALL: [Self; 5] = [
        Self::Given,
        Self::Taken,
        Self::Before,
        Self::After,
        Self::Result,
    ];
}

/// The stop of a process, and what it leaves behind.
#[derive(Clone, Default)]
pub(crate) struct Stops {
    pub(crate) at: Option<Point>,
    /// The folder with the payments, which outlives the process.
    pub(crate) folder: Option<PathBuf>,
    /// The payments of this process.
    pub(crate) paid: Paid,
}

impl Stops {
    /// Pays into a folder, and stops at a point, if there is one.
    pub(crate) fn paying_into(folder: &Path, at: Option<Point>) -> Self {
        Self {
            at,
            folder: Some(folder.to_owned()),
            ..Self::default()
        }
    }

    /// Comes to a point, and stays there if the process stops at it.
    pub(crate) async fn come(&self, point: Point) {
        if self.at == Some(point) {
            println!("\n#stops");
            std::future::pending::<()>().await;
        }
    }

    async fn pay(self, payment: Payment) {
        self.come(Point::Before).await;
        if let Some(folder) = &self.folder {
            let file = folder.join("paid");
            let file = OpenOptions::new().create(true).append(true).open(file);
            writeln!(file.unwrap(), "{} {}", payment.0, payment.1).unwrap();
        }
        self.paid.lock().unwrap().push(payment);
        self.come(Point::After).await;
    }

    /// Returns the agent that pays, and comes to the points. A callback multiplies the amount.
    pub(crate) fn agent(&self, case: Case, factor: i64) -> AgentBuilder {
        let factor = Arc::new(AtomicI64::new(factor));
        let pays = self.clone();
        let agent = clerk(case, &factor, move |payment| pays.clone().pay(payment));
        let stops = self.clone();
        let comes = before_agent(move |_: &mut AgentRequest| {
            let stops = stops.clone();
            async move {
                stops.come(Point::Taken).await;
                Ok(())
            }
        });
        let stops = self.clone();
        let tells = before_model(move |request: &mut ModelRequest| {
            let stops = stops.clone();
            let mut results = request.messages().iter().flat_map(Message::tool_results);
            let has_result = results.next().is_some();
            async move {
                if has_result {
                    stops.come(Point::Result).await;
                }
                Ok(())
            }
        });
        agent.on_agent(comes).on_model(tells)
    }
}

/// Returns what all processes have paid.
pub(crate) fn paid(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("paid")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A process of this test binary, which is killed when this is dropped.
pub(crate) struct Victim(Child);

impl Victim {
    /// Starts a test as a program with these variables, and waits until it stops at its point.
    pub(crate) fn start(test: &str, variables: &[(&str, OsString)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", test, "--nocapture"])
            .envs(variables.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut victim = Self(command.spawn().unwrap());
        let output = BufReader::new(victim.0.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        let at = lines.find(|line| line.starts_with('#'));
        assert_eq!(at.as_deref(), Some("#stops"), "{variables:?}");
        victim
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Not to be caught: what it has not written is lost.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
