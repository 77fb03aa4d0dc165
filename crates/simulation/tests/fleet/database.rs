//! A database that all servers of the fleet share: threads, runs and limits. It outlives every
//! server, an operation takes time, and a server that is cut off gets no answer.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use tokio::time::sleep;
use tower_agent::{AgentRequest, BoxError, Result};
use tower_agent_agui::conversations::{
    Append, ConversationInfo, ConversationKey, ConversationQuery, ConversationStore,
    MemoryConversations, StoredConversation,
};
use tower_agent_durable::StoreError;
use tower_agent_durable::journal::{
    Input, Intent, Journal, JournalError, KnownRun, OpenRun, RunEnd, RunKey, RunStatus, StepId,
    StepLease, StepRecord, StepState, next_request,
};
use tower_agent_middleware::rate_limit::{Exhausted, RateChange, RateState, RateStore};

use crate::wire::Host;
use crate::world::World;

/// The threads and the runs that are kept: those of some hours, in a week of many users. Nobody
/// comes back to an older one.
const KEPT: usize = 10_000;

/// The database itself.
pub(crate) struct Tables {
    threads: MemoryConversations,
    runs: Mutex<Runs>,
    limits: Mutex<BTreeMap<String, RateState>>,
}

#[derive(Default)]
struct Runs {
    by_key: BTreeMap<String, Run>,
    /// Their keys, the first that began first.
    keys: VecDeque<String>,
}

impl Tables {
    pub(crate) fn new() -> Self {
        let threads = MemoryConversations::new()
            .max_conversations(KEPT)
            .max_bytes(usize::MAX)
            .max_conversations_of_user(usize::MAX)
            .max_bytes_of_user(usize::MAX);
        Self {
            threads,
            runs: Mutex::default(),
            limits: Mutex::default(),
        }
    }
}

/// The database as one server reaches it.
#[derive(Clone)]
pub(crate) struct Database {
    tables: Arc<Tables>,
    world: World,
    host: Host,
}

impl Database {
    pub(crate) fn new(tables: Arc<Tables>, world: World, host: Host) -> Self {
        Self {
            tables,
            world,
            host,
        }
    }

    /// Makes an operation. It may be made although its answer is lost.
    async fn operation<T>(&self, operation: impl FnOnce(&Tables) -> T) -> Result<T, StoreError> {
        self.way().await?;
        let done = operation(&self.tables);
        self.way().await?;
        Ok(done)
    }

    /// The way there, or back.
    async fn way(&self) -> Result<(), StoreError> {
        sleep(self.world.time(Duration::from_millis(5))).await;
        if self.world.seen().cut_off.contains(self.host) {
            self.world.fault("no answer of the database");
            sleep(Duration::from_secs(3)).await;
            return Err(StoreError::database("no answer"));
        }
        Ok(())
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.host).finish()
    }
}

// Threads.

impl ConversationStore for Database {
    async fn load(
        &self,
        key: &ConversationKey,
        from: usize,
    ) -> Result<Option<StoredConversation>, StoreError> {
        self.way().await?;
        let loaded = self.tables.threads.load(key, from).await?;
        self.way().await?;
        Ok(loaded)
    }

    async fn append(
        &self,
        key: &ConversationKey,
        expected: u64,
        append: Append,
    ) -> Result<u64, StoreError> {
        self.way().await?;
        let version = self.tables.threads.append(key, expected, append).await;
        self.way().await?;
        version
    }

    async fn list(&self, query: &ConversationQuery) -> Result<Vec<ConversationInfo>, StoreError> {
        self.way().await?;
        self.tables.threads.list(query).await
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        self.way().await?;
        self.tables.threads.delete(key).await
    }

    async fn delete_expired(&self) -> Result<u64, StoreError> {
        self.way().await?;
        self.tables.threads.delete_expired().await
    }
}

// Limits.

impl Tables {
    fn limit(&self, key: &str) -> (RateState, Duration) {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let limits = self.limits.lock().unwrap();
        (limits.get(key).cloned().unwrap_or_default(), now)
    }

    fn change(&self, key: &str, change: &RateChange) -> Option<Exhausted> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let mut limits = self.limits.lock().unwrap();
        change.apply(limits.entry(key.to_owned()).or_default(), now)
    }
}

impl RateStore for Database {
    fn update<'a>(
        &'a self,
        key: &'a str,
        change: RateChange,
    ) -> BoxFuture<'a, Result<Option<Exhausted>>> {
        Box::pin(async move {
            let changed = self.operation(|tables| tables.change(key, &change)).await;
            Ok(changed.map_err(BoxError::from)?)
        })
    }

    fn read<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(RateState, Duration)>> {
        Box::pin(async move {
            let read = self.operation(|tables| tables.limit(key)).await;
            Ok(read.map_err(BoxError::from)?)
        })
    }

    fn update_later(&self, key: &str, change: RateChange) {
        let database = self.clone();
        let key = key.to_owned();
        tokio::spawn(async move {
            // A change that is lost counts as it was reserved.
            drop(
                database
                    .operation(|tables| tables.change(&key, &change))
                    .await,
            );
        });
    }
}

// Runs.

struct Run {
    open: OpenRun,
    status: RunStatus,
    /// Its requests, in order.
    inputs: Vec<Input>,
    end: Option<RunEnd>,
    steps: BTreeMap<String, Step>,
}

struct Step {
    id: StepId,
    intent: Intent,
    input: u32,
    attempt: u32,
    record: Option<StepRecord>,
}

type Answer<T> = Result<T, JournalError>;

impl Runs {
    /// Adds a run, for which the oldest goes if there are too many.
    fn insert(&mut self, key: String, run: Run) {
        self.keys.push_back(key.clone());
        self.by_key.insert(key, run);
        if self.keys.len() > KEPT
            && let Some(oldest) = self.keys.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }
}

impl Tables {
    /// Changes a run that this process has open.
    fn own<T>(&self, run: &OpenRun, change: impl FnOnce(&mut Run) -> Answer<T>) -> Answer<T> {
        let mut runs = self.runs.lock().unwrap();
        let known = runs.by_key.get_mut(&run.key().to_text());
        let id = run.id.clone();
        let known = known.ok_or_else(|| JournalError::UnknownRun { run: id.clone() })?;
        if known.open.epoch != run.epoch {
            return Err(JournalError::TakenOver { run: id });
        }
        change(known)
    }

    fn start(&self, input: &Input) -> Answer<OpenRun> {
        let mut runs = self.runs.lock().unwrap();
        let key = input.key();
        let Some(run) = runs.by_key.get_mut(&key.to_text()) else {
            let run = Run {
                open: OpenRun::new(key.clone(), 1, 1, 1),
                status: RunStatus::Running,
                inputs: vec![input.clone()],
                end: None,
                steps: BTreeMap::new(),
            };
            let open = run.open.clone();
            runs.insert(key.to_text(), run);
            return Ok(open);
        };
        let mut known = KnownRun::new(run.open.clone(), run.status);
        // Requests are numbered from 1.
        let before = run.open.conversation - 1;
        for earlier in run.inputs.iter().skip(before as usize) {
            known.fingerprints.push(earlier.fingerprint.clone());
            known
                .answers
                .extend_from_slice(earlier.request.resolutions());
            known.turn = earlier.request.checkpoint().head.turn;
        }
        if let Some(end) = &run.end {
            known.interrupts = end.interrupts().to_vec();
        }
        let open = known.start(input)?;
        if open.input != run.open.input {
            run.inputs.push(input.clone());
        }
        run.end = None;
        run.status = RunStatus::Running;
        run.open = open.clone();
        Ok(open)
    }

    fn begin(&self, run: &OpenRun, id: &StepId, intent: &Intent) -> Answer<StepState> {
        self.own(run, |known| {
            let lease = |attempt| StepLease::new(run.clone(), id.clone(), attempt);
            if let Some(step) = known.steps.get(&id.key()) {
                let intent = step.intent.clone();
                return Ok(match &step.record {
                    Some(record) => StepState::Done(intent, record.clone()),
                    None => StepState::Unfinished(lease(step.attempt), intent),
                });
            }
            let step = Step {
                id: id.clone(),
                intent: intent.clone(),
                input: known.open.input,
                attempt: 1,
                record: None,
            };
            known.steps.insert(id.key(), step);
            Ok(StepState::Fresh(lease(1)))
        })
    }

    /// Changes a step of which this process has the lease.
    fn step(&self, lease: &StepLease, change: impl FnOnce(&mut Step)) -> Answer<()> {
        self.own(&lease.run, |run| {
            let input = run.open.input;
            let step = run.steps.get_mut(&lease.step.key());
            let step = step.filter(|step| step.attempt == lease.attempt && step.record.is_none());
            let id = lease.run.id.clone();
            let step = step.ok_or(JournalError::TakenOver { run: id })?;
            step.input = input;
            change(step);
            Ok(())
        })
    }
}

impl Database {
    /// Returns the request with which a run goes on, if it has begun.
    pub(crate) async fn next_request(&self, key: &RunKey) -> Answer<Option<AgentRequest>> {
        let found = |tables: &Tables| {
            let runs = tables.runs.lock().unwrap();
            let run = runs.by_key.get(&key.to_text())?;
            let input = run.inputs.last()?;
            Some((input.request.clone(), run.end.clone()))
        };
        let found = self.operation(found).await?;
        Ok(found.map(|(request, end)| next_request(request, end, SystemTime::now())))
    }
}

impl Journal for Database {
    async fn start(&self, input: &Input) -> Answer<OpenRun> {
        self.operation(|tables| tables.start(input)).await?
    }

    async fn earlier_steps(&self, run: &OpenRun) -> Answer<Vec<StepId>> {
        let steps = |known: &mut Run| {
            let of_input = known.steps.values().filter(|step| {
                let is_needed = step.record.is_some() || !step.intent.is_repeatable;
                step.input == known.open.input && is_needed
            });
            Ok(of_input.map(|step| step.id.clone()).collect())
        };
        self.operation(|tables| tables.own(run, steps)).await?
    }

    async fn begin(&self, run: &OpenRun, step: &StepId, intent: &Intent) -> Answer<StepState> {
        self.operation(|tables| tables.begin(run, step, intent))
            .await?
    }

    async fn begin_again(&self, lease: StepLease) -> Answer<StepLease> {
        let next = lease.attempt + 1;
        self.operation(|tables| tables.step(&lease, |step| step.attempt = next))
            .await??;
        Ok(StepLease::new(lease.run, lease.step, next))
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Answer<()> {
        let record = record.clone();
        self.operation(|tables| tables.step(lease, |step| step.record = Some(record)))
            .await?
    }

    async fn release(&self, lease: &StepLease) -> Answer<()> {
        self.operation(|tables| {
            tables.step(lease, |_| {})?;
            tables.own(&lease.run, |run| {
                run.steps.remove(&lease.step.key());
                Ok(())
            })
        })
        .await?
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Answer<()> {
        self.operation(|tables| {
            tables.own(run, |known| {
                known.status = end.status();
                known.end = Some(end.clone());
                Ok(())
            })
        })
        .await?
    }
}
