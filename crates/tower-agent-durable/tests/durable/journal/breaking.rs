//! A run whose database breaks before any of its operations, and is repaired.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tower::service_fn;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentResponse, BoxError, Effect, Error, Interrupt, ModelRequest, ModelResponse, Request,
    Resolution, Result, Role, Tool, ToolRequest,
};
use tower_agent_durable::journal::{
    Input, Intent, Journal, JournalError, OpenRun, RunEnd, Runs, StepId, StepKind, StepLease,
    StepRecord, StepState, UnfinishedStep,
};
use tower_agent_middleware::approval::{Approval, Decision};

use crate::support::{durable, request};

/// The events of a run: the operations of its journal, and the calls that are really made.
#[derive(Clone, Default)]
pub(super) struct World(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// The number of the run's request.
    input: AtomicU32,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    operations: Vec<String>,
    /// The steps that were made, with the key of the call of a tool.
    made: Vec<(String, Option<String>)>,
    /// Those that were made for a journal that has lost its end.
    earlier: Vec<(String, Option<String>)>,
    /// The steps that are kept as begun, and those whose records are.
    begun: BTreeSet<String>,
    kept: BTreeSet<String>,
    /// How often it was asked about an unfinished call.
    asked: u32,
}

impl World {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap()
    }

    pub(super) fn operations(&self) -> Vec<String> {
        self.seen().operations.clone()
    }

    pub(super) fn asked(&self) -> u32 {
        self.seen().asked
    }

    /// Returns how often a step was made.
    pub(super) fn times(&self, step: &str) -> usize {
        self.seen()
            .made
            .iter()
            .filter(|(made, _)| made == step)
            .count()
    }

    /// Returns how many steps were made.
    pub(super) fn made(&self) -> usize {
        self.seen().made.len()
    }

    fn make(&self, step: String, key: Option<String>) {
        let mut seen = self.seen();
        assert!(
            seen.begun.contains(&step),
            "`{step}` was made without a journal"
        );
        assert!(!seen.kept.contains(&step), "`{step}` was made again");
        let before = seen
            .earlier
            .iter()
            .find(|(made, _)| *made == step && key.is_some());
        assert!(
            before.is_none_or(|(_, before)| *before == key),
            "`{step}` has another key"
        );
        seen.made.push((step, key));
    }

    /// Returns a journal that calls `shake` before each operation, with its number, from 0.
    fn watching<J>(&self, inner: J, shake: impl Fn(usize) + Send + Sync + 'static) -> Watched<J> {
        Watched {
            world: self.clone(),
            inner,
            shake: Arc::new(shake),
        }
    }

    /// Returns what goes on with this run and a journal that has nothing after these steps, of
    /// which some have ended. A tool is called as it was before.
    pub(super) fn after(&self, steps: &[(String, bool)]) -> Self {
        let world = Self::default();
        {
            let mut seen = world.seen();
            seen.earlier.clone_from(&self.seen().made);
            let ended = steps.iter().filter(|(_, has_ended)| *has_ended);
            seen.kept = ended.map(|(step, _)| step.clone()).collect();
        }
        world
    }

    /// Fails unless the database has every step that it has said it keeps, and each that may not be
    /// repeated.
    async fn check(&self, runs: &Runs) {
        let steps = match runs.steps("run 1").await {
            Err(JournalError::UnknownRun { .. }) => Vec::new(),
            steps => steps.unwrap(),
        };
        let seen = self.seen();
        let mutating = |step: &str| step == "charge" || step == "pay";
        for (step, _) in seen.made.iter().filter(|(step, _)| mutating(step)) {
            assert!(
                steps.iter().any(|stored| name(&stored.id) == *step),
                "`{step}` was lost"
            );
        }
        for step in &seen.kept {
            let is_kept = steps
                .iter()
                .any(|stored| name(&stored.id) == *step && stored.ended_at.is_some());
            assert!(is_kept, "the record of `{step}` was lost");
        }
    }

    /// Returns an agent that looks and charges at the same time, and then pays what is approved.
    pub(super) fn agent(
        &self,
        journal: impl Journal,
        shake: impl Fn(usize) + Send + Sync + 'static,
    ) -> Agent {
        let world = self.clone();
        let model = service_fn(move |request: ModelRequest| {
            let input = world.0.input.load(Ordering::SeqCst);
            world.make(
                format!("model {input} {}", request.context().iteration()),
                None,
            );
            let results = request
                .messages()
                .iter()
                .filter(|message| message.role() == Role::Tool)
                .count();
            let call = |tool: &str| ToolCall::new(format!("of {tool}"), tool, json!({}));
            let response = match results {
                0 => ModelResponse::from_tool_calls([call("look"), call("charge")]),
                2 => ModelResponse::from_tool_calls([call("pay")]),
                _ => ModelResponse::from_text("Done."),
            };
            async { Ok::<_, BoxError>(response) }
        });
        durable(model, self.watching(journal, shake))
            .tool(self.tool("look", Effect::Pure))
            .tool(self.tool("charge", Effect::Mutating))
            .tool(self.tool("pay", Effect::Mutating))
            .on_tool(Approval::of_tools(["pay"]))
            .build()
            .unwrap()
    }

    fn tool(&self, name: &'static str, effect: Effect) -> Tool {
        let world = self.clone();
        let act = move |_: Value, request: ToolRequest| {
            world.make(name.to_owned(), Some(request.idempotency_key()));
            async move { format!("{name} done") }
        };
        Tool::function_with(name, "Does it.", act).effect(effect)
    }

    /// Starts the run, or goes on with it and answers what it waits for, until it has ended or
    /// failed.
    pub(super) async fn go_on(&self, agent: &Agent, runs: &Runs) -> Result<AgentResponse> {
        loop {
            let next = match runs.get("run 1").await {
                Err(JournalError::UnknownRun { .. }) => request(),
                Err(error) => Err(error)?,
                Ok(run) => {
                    let answers: Vec<_> = run
                        .interrupts
                        .iter()
                        .map(|interrupt| self.answer(interrupt))
                        .collect();
                    runs.request("run 1").await?.with_resolutions(answers)
                }
            };
            let response = agent.run(next).await?;
            if response.interrupts().is_empty() {
                return Ok(response);
            }
        }
    }

    /// Goes on with the run until it has ended, and returns its messages; after each failure, does
    /// this.
    pub(super) async fn finish(
        &self,
        agent: &Agent,
        runs: &Runs,
        mut repair: impl AsyncFnMut(Error),
    ) -> Vec<String> {
        let response = loop {
            match self.go_on(agent, runs).await {
                Ok(response) => break response,
                Err(error) => repair(error).await,
            }
            self.check(runs).await;
        };
        self.check(runs).await;
        transcript(&response)
    }

    /// Plays the person: approves, and looks whether an unfinished call was made.
    fn answer(&self, interrupt: &Interrupt) -> Resolution {
        if interrupt.reason != UnfinishedStep::REASON {
            return Resolution::resolved(&interrupt.id, Decision::Approve);
        }
        let key = interrupt.payload["idempotency_key"].as_str();
        let mut seen = self.seen();
        seen.asked += 1;
        let mut made = seen.made.iter().chain(&seen.earlier);
        let made = made.find(|(_, made)| made.as_deref() == key);
        let answer = match made {
            Some((tool, _)) => UnfinishedStep::Done(json!(format!("{tool} done"))),
            None => UnfinishedStep::RunAgain,
        };
        Resolution::resolved(&interrupt.id, answer)
    }
}

/// Returns the messages of a response.
fn transcript(response: &AgentResponse) -> Vec<String> {
    response
        .messages()
        .iter()
        .map(|message| serde_json::to_string(message).unwrap())
        .collect()
}

#[derive(Clone)]
struct Watched<J> {
    world: World,
    inner: J,
    shake: Arc<dyn Fn(usize) + Send + Sync>,
}

impl<J> Watched<J> {
    fn operation(&self, what: String) {
        let number = {
            let mut seen = self.world.seen();
            seen.operations.push(what);
            seen.operations.len() - 1
        };
        (self.shake)(number);
    }
}

impl<J: Journal> Journal for Watched<J> {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        self.operation("start".to_owned());
        let run = self.inner.start(input).await?;
        self.world.0.input.store(run.input, Ordering::SeqCst);
        Ok(run)
    }

    async fn earlier_steps(&self, run: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        self.inner.earlier_steps(run).await
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<StepState, JournalError> {
        self.operation(format!("begin {}", name(step)));
        let begun = self.inner.begin(run, step, intent).await?;
        self.world.seen().begun.insert(name(step));
        Ok(begun)
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        self.operation(format!("begin {} again", name(&lease.step)));
        self.inner.begin_again(lease).await
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        self.operation(format!("commit {}", name(&lease.step)));
        self.inner.commit(lease, record).await?;
        self.world.seen().kept.insert(name(&lease.step));
        Ok(())
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        self.operation(format!("release {}", name(&lease.step)));
        self.inner.release(lease).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        self.operation("end".to_owned());
        self.inner.end(run, end).await
    }
}

pub(super) fn name(step: &StepId) -> String {
    match &step.kind {
        StepKind::Tool(tool) => tool.to_string(),
        StepKind::Value(name) => format!("value {name} {}", step.nth),
        _ => format!("model {} {}", step.input, step.iteration),
    }
}
