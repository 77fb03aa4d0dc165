//! Sessions: a second turn, a failed run, an interrupt, and another process.
//!
//! `cargo run --example sessions`
//!
//! A conversation is stored as its latest `Checkpoint`, as JSON. Every run takes it out and stores
//! the one that it ended with, however it ended. The store rejects concurrent runs of one session
//! and a checkpoint that is not the latest, so an approved refund is paid once, however often the
//! user clicks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tower_agent::agent::BuildError;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, BoxError, Checkpoint, Error, ErrorKind, Resolution, Tool,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

/// Sessions by name. A database would use one row for each.
#[derive(Default, Serialize, Deserialize)]
struct Sessions(Mutex<HashMap<String, Session>>);

#[derive(Default, Serialize, Deserialize)]
struct Session {
    checkpoint: Checkpoint,
    /// Stays set if the process dies; clearing it means deciding to resume.
    is_running: bool,
}

impl Sessions {
    /// Takes a session's checkpoint for a run. `turn` is the last turn that the caller knows.
    fn begin(&self, name: &str, turn: u64) -> Result<Checkpoint, Error> {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.entry(name.to_owned()).or_default();
        let latest = session.checkpoint.head.turn;
        if session.is_running || latest != turn {
            let message =
                format!("`{name}` is at turn {latest}, or under way; this is turn {turn}");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        session.is_running = true;
        Ok(session.checkpoint.clone())
    }

    /// Stores the checkpoint of the finished run, if there is one.
    fn end(&self, name: &str, checkpoint: Option<Checkpoint>) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.entry(name.to_owned()).or_default();
        session.is_running = false;
        if let Some(checkpoint) = checkpoint {
            session.checkpoint = checkpoint;
        }
    }

    fn turn(&self, name: &str) -> u64 {
        let sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sessions
            .get(name)
            .map_or(0, |session| session.checkpoint.head.turn)
    }

    /// Runs one turn of a session.
    async fn run(
        &self,
        agent: &Agent,
        (name, turn): (&str, u64),
        ask: impl FnOnce(AgentRequest) -> AgentRequest,
    ) -> Result<AgentResponse, Error> {
        let checkpoint = self.begin(name, turn)?;
        let result = agent.run(ask(AgentRequest::resume(checkpoint))).await;
        let checkpoint = match &result {
            Ok(response) => Some(response.checkpoint()),
            Err(error) => error.checkpoint().cloned(),
        };
        self.end(name, checkpoint);
        result
    }
}

#[derive(Deserialize, JsonSchema)]
struct Refund {
    order: String,
}

/// Builds a shop: its tools need its database, which a closure owns.
fn agent(paid: &Arc<AtomicU32>, turns: Vec<Turn>) -> Result<Agent, BuildError> {
    let paid = paid.clone();
    let refund = Tool::function("refund", "Refunds an order.", move |Refund { order }| {
        paid.fetch_add(1, Ordering::SeqCst);
        format!("order {order} is refunded")
    });
    Agent::builder(ScriptedModel::new(turns))
        .tool(refund)
        .on_tool(Approval::of_tools(["refund"]))
        .build()
}

fn approve(paused: &AgentResponse) -> Vec<Resolution> {
    let pending = paused.interrupts().iter();
    pending
        .map(|interrupt| Resolution::resolved(&interrupt.id, Decision::Approve))
        .collect()
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let paid = Arc::new(AtomicU32::new(0));
    let refund = || Turn::tool("refund", json!({ "order": "A7" }));
    let busy = || Turn::error(Error::new(ErrorKind::Overloaded, "503"));

    // A second turn.
    let sessions = Sessions::default();
    let shop = agent(
        &paid,
        vec![
            Turn::from_text("Hello, Ada."),
            Turn::from_text("You are Ada."),
        ],
    )?;
    sessions
        .run(&shop, ("ada", 0), |request| {
            request.with_message("I am Ada.")
        })
        .await?;
    let response = sessions
        .run(&shop, ("ada", 1), |request| {
            request.with_message("Who am I?")
        })
        .await?;
    println!("turn {}: {}", sessions.turn("ada"), response.text());
    assert_eq!((sessions.turn("ada"), response.messages().len()), (2, 4));

    // An interrupt: the run waits for an approval.
    let shop = agent(&paid, vec![refund()])?;
    let ask = |request: AgentRequest| request.with_message("Refund order A7.");
    let paused = sessions.run(&shop, ("ada", 2), ask).await?;
    println!("interrupted: {:?}", paused.interrupts()[0].message);
    assert_eq!(paid.load(Ordering::SeqCst), 0);

    // Another process: only the JSON text survives.
    let saved = serde_json::to_string(&sessions)?;
    drop((sessions, shop));
    let sessions: Sessions = serde_json::from_str(&saved)?;

    // The refund is paid, and then the model is down. The run fails, but keeps its progress.
    let shop = agent(&paid, vec![busy()])?;
    let yes = approve(&paused);
    let approved = |request: AgentRequest| request.with_resolutions(yes.clone());
    let error = sessions.run(&shop, ("ada", 3), approved).await.unwrap_err();
    println!("failed: {error}");
    assert_eq!((sessions.turn("ada"), paid.load(Ordering::SeqCst)), (4, 1));

    // The same approval again, for the turn that asked for it: rejected before anything runs.
    let error = sessions.run(&shop, ("ada", 3), approved).await.unwrap_err();
    println!("refused: {error}");
    assert_eq!(paid.load(Ordering::SeqCst), 1);

    // Resuming after the failure: the model reads that the refund is paid.
    let shop = agent(&paid, vec![Turn::from_text("Your refund is on its way.")])?;
    let response = sessions.run(&shop, ("ada", 4), |request| request).await?;
    println!("turn {}: {}", sessions.turn("ada"), response.text());
    assert_eq!(
        (response.text().as_str(), paid.load(Ordering::SeqCst)),
        ("Your refund is on its way.", 1)
    );
    Ok(())
}
