//! A run with everything in it: a stream, tools in parallel, a retry, a sub-agent, an approval, a
//! budget. Its models answer by what they are asked, and everything that is really done is written
//! to a file.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use serde_json::{Map, Value, json};
use test_support::store::EndedLeases;
use tokio::sync::RwLock;
use tower::layer::layer_fn;
use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceExt, service_fn};
use tower_agent::agent::AgentService;
use tower_agent::message::{Messages, ToolCall};
use tower_agent::stream::Delta;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, BoxError, Effect, Error, ErrorKind, ModelRequest,
    ModelResponse, Request, Resolution, Result, Role, RunContext, RunStream, State, Tool,
    ToolRequest, Usage,
};
use tower_agent_conversations::{ConversationKey, ConversationStore, Session, SessionLayer};
use tower_agent_durable::journal::{
    Durable, Input, Intent, Journal, JournalError, OpenRun, RunEnd, RunStatus, StepId, StepLease,
    StepRecord, StepState, UnfinishedStep,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::retry::CallRetryLayer;

use super::fate::Fate;
use super::place::Database;

pub(crate) const RUN: &str = "run 1";

/// The files of what was done, and the points at which something happens to the process.
#[derive(Clone)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    fates: Mutex<Vec<Fate>>,
    point: AtomicU32,
    /// The number of the run's request.
    input: AtomicU32,
    /// Shared by the calls that write to the journal.
    writing: RwLock<()>,
    /// How often each model call was tried in this process.
    tries: Mutex<Vec<String>>,
}

impl World {
    pub(crate) fn new(folder: &Path, fates: impl IntoIterator<Item = Fate>) -> Self {
        let (point, input, writing, tries) = Default::default();
        let fates = Mutex::new(fates.into_iter().collect());
        Self(Arc::new(Inner {
            folder: folder.to_owned(),
            fates,
            point,
            input,
            writing,
            tries,
        }))
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0.folder
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.folder.join(name)
    }

    /// Writes a line to a file that the journal knows nothing of.
    pub(crate) fn write(&self, file: &str, line: &str) {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.file(file))
            .unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// A point at which something may happen to the process.
    pub(crate) async fn point(&self, what: &str) {
        let point = self.0.point.fetch_add(1, Ordering::SeqCst) + 1;
        self.write("points", &format!("{point} {what}"));
        let fate = self.fate(what).or_else(|| self.fate(&point.to_string()));
        let Some(fate) = fate else { return };
        // Not in the middle of what another call writes, which would keep others out.
        let _quiet = if fate.is_stop() {
            Some(self.0.writing.write().await)
        } else {
            None
        };
        fate.happen(self.folder());
    }

    /// Returns what happens at a point, once.
    fn fate(&self, point: &str) -> Option<Fate> {
        let mut fates = self.0.fates.lock().unwrap();
        let at = fates.iter().position(|fate| fate.is_at(point))?;
        Some(fates.remove(at))
    }

    async fn writing<T>(&self, write: impl Future<Output = T>) -> T {
        let _writing = self.0.writing.read().await;
        write.await
    }

    fn made(&self, what: &str, context: &RunContext) {
        let (path, iteration) = (context.step_path(), context.iteration());
        let input = self.0.input.load(Ordering::SeqCst);
        self.write("done", &format!("made {what} {path} {iteration} {input}"));
    }

    /// The steps that were made or committed, in order.
    pub(crate) fn done(folder: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(folder.join("done")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn model(
        &self,
        answer: fn(&ModelRequest) -> ModelResponse,
    ) -> impl tower_agent::model::ModelService {
        let world = self.clone();
        service_fn(move |request: ModelRequest| {
            let world = world.clone();
            async move {
                let context = request.context();
                world.made("model", context);
                world.point("a model is called").await;
                let response = answer(&request);
                let usage = Usage::new(10, u64::from(context.iteration()) + 1);
                let input = world.0.input.load(Ordering::SeqCst);
                let place = format!("{} {} {input}", context.step_path(), context.iteration());
                let is_first = {
                    let mut tries = world.0.tries.lock().unwrap();
                    let is_first = !tries.contains(&place);
                    tries.push(place);
                    is_first
                };
                // The call after a result fails at first.
                let follows = request
                    .messages()
                    .iter()
                    .any(|message| message.tool_results().next().is_some());
                if is_first && follows {
                    world.point("a model fails").await;
                    return Err(Error::new(ErrorKind::Overloaded, "busy"));
                }
                let Some(sender) = request.delta_sender() else {
                    return Ok(response.with_usage(usage));
                };
                let mut attempt = sender.open();
                attempt.send(Delta::Text("Well. ".into())).await?;
                world.point("a model streams").await;
                for part in response.message().parts() {
                    attempt.send(part.clone()).await?;
                }
                let streamed = attempt.finish().await?;
                world.point("a model has streamed").await;
                Ok::<_, Error>(ModelResponse::from(streamed).with_usage(usage))
            }
        })
    }

    fn tool(&self, name: &'static str, effect: Effect) -> Tool {
        let world = self.clone();
        let tool = move |_: Value, request: ToolRequest| {
            let world = world.clone();
            async move {
                let context = request.context();
                world.point(&format!("{name} is called")).await;
                // Others get their turn in between.
                tokio::task::yield_now().await;
                world.made(name, context);
                world.write("keys", &request.idempotency_key());
                context.state().update(name, |count| {
                    *count = json!(count.as_u64().unwrap_or(0) + 1)
                });
                world.point(&format!("{name} has run")).await;
                format!("{name} done")
            }
        };
        Tool::function_with(name, "Does it.", tool).effect(effect)
    }

    pub(crate) fn agent(&self, journal: impl Journal) -> (Agent, Budget) {
        let retry = || {
            let moment = Duration::from_millis(1);
            CallRetryLayer::new()
                .backoff(moment, moment)
                .restart_streams(true)
        };
        let worker = Agent::builder(self.model(answer_of_worker))
            .name("worker")
            .tool(self.tool("note", Effect::Mutating))
            .on_tool(Approval::of_tools(["note"]))
            .model_layer(retry())
            .build()
            .unwrap();
        let budget = Budget::new(
            Limits::new()
                .model_calls(100)
                .tokens(10_000)
                .tool_calls(100),
        );
        let agent = Agent::builder(self.model(answer_of_boss))
            .name("boss")
            .tool(self.tool("look", Effect::Pure))
            .tool(self.tool("charge", Effect::Mutating))
            .tool(self.tool("pay", Effect::Mutating))
            .tool(worker.into_tool("Works."))
            .on_tool(Approval::of_tools(["pay"]))
            .global_callbacks(Durable::new(journal))
            .global_callbacks(budget.clone())
            .agent_layer(layer_fn(self.writing_passes(budget.clone())))
            .model_layer(retry())
            .build()
            .unwrap();
        (agent, budget)
    }

    /// Writes what each pass from one message to another has spent, for those who do not make it.
    fn writing_passes<S: AgentService>(
        &self,
        budget: Budget,
    ) -> impl Fn(S) -> BoxCloneSyncService<AgentRequest, AgentResponse, Error> + use<S> {
        let world = self.clone();
        move |inner| {
            let (world, budget) = (world.clone(), budget.clone());
            let make = move |request: AgentRequest| {
                let (world, budget, inner) = (world.clone(), budget.clone(), inner.clone());
                async move {
                    let (context, start) = (request.context().clone(), request.messages().len());
                    let response = inner.oneshot(request).await.map_err(|error| error.into())?;
                    let (used, end) = (budget.account(&context)?.used(), response.messages().len());
                    let (models, tools) = (used.model_calls, used.tool_calls);
                    let spent = format!("{start}-{end} {models} {tools} {}", used.tokens);
                    world.write("passes", &spent);
                    Ok::<_, Error>(response)
                }
            };
            BoxCloneSyncService::new(service_fn(make))
        }
    }

    /// Returns a journal with points before and after all that it writes.
    pub(crate) fn watching(&self, inner: impl Journal) -> impl Journal {
        Watched {
            world: self.clone(),
            inner,
        }
    }

    /// Starts the run or goes on with it, answers what it waits for, and writes down how it ended.
    pub(crate) async fn go_on(&self, database: impl Database, run: &str) -> Result<(), BoxError> {
        let (agent, budget) = self.agent(self.watching(database.clone()));
        loop {
            let runs = database.runs();
            let request = match runs.get(run).await {
                Err(JournalError::UnknownRun { .. }) => first_request(run),
                Err(error) => Err(error)?,
                Ok(seen) => {
                    let answers: Vec<_> = seen
                        .interrupts
                        .iter()
                        .map(|interrupt| self.answer(interrupt))
                        .collect();
                    runs.request(run).await?.with_resolutions(answers)
                }
            };
            if self
                .make(&agent, &budget, request)
                .await?
                .interrupts()
                .is_empty()
            {
                assert_eq!(runs.get(run).await?.status, RunStatus::Completed);
                return Ok(());
            }
        }
    }

    /// Makes the run until it waits or has ended, and writes down what it has spent, and how it
    /// ended.
    pub(crate) async fn make(
        &self,
        agent: &Agent,
        budget: &Budget,
        request: AgentRequest,
    ) -> Result<AgentResponse, BoxError> {
        let (start, context) = (request.messages().len(), request.context().clone());
        let response = stream(agent.clone(), request).await?;
        let used = budget.account(&context)?.used();
        let end = response.messages().len();
        let used = format!("{} {} {}", used.model_calls, used.tool_calls, used.tokens);
        self.write("spent", &format!("{start}-{end} {used}"));
        if response.interrupts().is_empty() {
            self.end(&response)?;
        }
        Ok(response)
    }

    /// The same in a session: what is asked of it, or answered, is written down before it is sent,
    /// and sent again if a process has died.
    pub(crate) async fn go_on_in_session(
        &self,
        database: impl Journal + ConversationStore,
        run: &str,
    ) -> Result<(), BoxError> {
        let key = ConversationKey::new("shop", "ada", run);
        let (agent, _) = self.agent(self.watching(database.clone()));
        let layer = SessionLayer::new(EndedLeases(database.clone()));
        let (agent, sent) = (layer.layer(agent), self.file("sent.json"));
        loop {
            let session = Session::load(&database, &key).await?;
            let answers: Vec<Resolution> = match std::fs::read_to_string(&sent) {
                Ok(answers) => serde_json::from_str(&answers)?,
                Err(_) => {
                    let open = session
                        .map(|session| session.checkpoint.head.interrupts)
                        .unwrap_or_default();
                    open.iter()
                        .map(|interrupt| self.answer(interrupt))
                        .collect()
                }
            };
            std::fs::write(&sent, serde_json::to_string(&answers)?)?;
            let request = if answers.is_empty() {
                first_request(run)
            } else {
                AgentRequest::default()
                    .with_resolutions(answers)
                    .with_run_id(run)
            };
            let response = stream(agent.clone(), key.request(request)).await?;
            std::fs::remove_file(&sent)?;
            if response.interrupts().is_empty() {
                let kept = Session::load(&database, &key).await?.ok_or("no session")?;
                assert!(
                    kept.checkpoint
                        .messages
                        .iter()
                        .eq(response.messages().iter())
                );
                assert_eq!(
                    (kept.state, kept.is_running),
                    (response.state().snapshot(), false)
                );
                return self.end(&response);
            }
        }
    }

    fn end(&self, response: &AgentResponse) -> Result<(), BoxError> {
        self.write_end(response.messages(), &response.state().snapshot())
    }

    /// Writes down how the run has ended.
    pub(crate) fn write_end(
        &self,
        messages: &Messages,
        state: &Map<String, Value>,
    ) -> Result<(), BoxError> {
        let end = json!({ "messages": messages, "state": state });
        Ok(std::fs::write(self.file("end.json"), end.to_string())?)
    }

    /// Plays the person: approves, and looks whether an unfinished call was made.
    pub(crate) fn answer(&self, interrupt: &tower_agent::Interrupt) -> Resolution {
        if interrupt.reason != UnfinishedStep::REASON {
            return Resolution::resolved(&interrupt.id, Decision::Approve);
        }
        // Who looks has to know that nobody is about to do it.
        if let Some(fate) = self.fate("asks") {
            fate.happen(self.folder());
        }
        let tool = interrupt.payload["tool"].as_str().unwrap();
        let key = interrupt.payload["idempotency_key"].as_str().unwrap();
        let keys = std::fs::read_to_string(self.file("keys")).unwrap_or_default();
        let was_done = keys.lines().any(|line| line == key);
        self.write("asked", &format!("{tool} {was_done}"));
        let answer = if was_done {
            UnfinishedStep::Done(json!(format!("{tool} done")))
        } else {
            UnfinishedStep::RunAgain
        };
        Resolution::resolved(&interrupt.id, answer)
    }
}

pub(crate) fn first_request(run: &str) -> AgentRequest {
    let state = State::from_iter([("units".to_owned(), json!("metric"))]);
    AgentRequest::new("Do it all.")
        .with_state(state)
        .with_run_id(run)
}

async fn stream(agent: impl AgentService, request: AgentRequest) -> Result<AgentResponse> {
    let mut stream = RunStream::new(agent, request);
    while stream.next().await.is_some() {}
    stream.response().await
}

/// How many results of tools there are.
fn results(request: &ModelRequest) -> usize {
    request
        .messages()
        .iter()
        .filter(|message| message.role() == Role::Tool)
        .count()
}

fn call(id: &str, tool: &str) -> ToolCall {
    let arguments = match tool {
        "worker" => json!({ "request": "Note it." }),
        tool => json!({ "of": tool }),
    };
    ToolCall::new(id, tool, arguments)
}

fn answer_of_boss(request: &ModelRequest) -> ModelResponse {
    match results(request) {
        0 => ModelResponse::from_tool_calls([
            call("c2", "charge"),
            call("c1", "look"),
            call("c3", "worker"),
        ]),
        3 => ModelResponse::from_tool_calls([call("c4", "pay")]),
        _ => ModelResponse::from_text("All done."),
    }
}

fn answer_of_worker(request: &ModelRequest) -> ModelResponse {
    match results(request) {
        0 => ModelResponse::from_tool_calls([call("n1", "note")]),
        _ => ModelResponse::from_text("Noted."),
    }
}

/// A journal with points before and after all that it writes.
#[derive(Clone)]
struct Watched<J> {
    world: World,
    inner: J,
}

impl<J: Journal> Journal for Watched<J> {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        self.world.point("a run starts").await;
        let run = self.world.writing(self.inner.start(input)).await?;
        self.world.0.input.store(run.input, Ordering::SeqCst);
        self.world.point("a run has started").await;
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
        self.world.point(&format!("begins {}", step.key())).await;
        let begun = self
            .world
            .writing(self.inner.begin(run, step, intent))
            .await?;
        self.world.point(&format!("has begun {}", step.key())).await;
        Ok(begun)
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        self.world.point("begins again").await;
        let lease = self.world.writing(self.inner.begin_again(lease)).await?;
        self.world.point("has begun again").await;
        Ok(lease)
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        self.world
            .point(&format!("commits {}", lease.step.key()))
            .await;
        self.world.writing(self.inner.commit(lease, record)).await?;
        let StepId {
            kind,
            path,
            iteration,
            input,
            ..
        } = &lease.step;
        self.world
            .write("done", &format!("kept {kind:?} {path} {iteration} {input}"));
        self.world
            .point(&format!("has committed {}", lease.step.key()))
            .await;
        Ok(())
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        self.world
            .point(&format!("releases {}", lease.step.key()))
            .await;
        self.world.writing(self.inner.release(lease)).await?;
        self.world
            .point(&format!("has released {}", lease.step.key()))
            .await;
        Ok(())
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        self.world.point("a run ends").await;
        self.world.writing(self.inner.end(run, end)).await?;
        self.world.point("a run has ended").await;
        Ok(())
    }
}
