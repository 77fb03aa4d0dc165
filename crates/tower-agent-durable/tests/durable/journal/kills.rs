//! Thousands of kills: a program is lost at random points of the runs of two users, who have sent
//! the same words with the same id, and others go on.
//!
//! A process that is killed leaves what it has written to the database and to the world, and
//! nothing else. So does one whose runs are dropped in this process, which costs milliseconds;
//! `kill` does it to real processes. Each case is made of its number: a case that fails says which
//! it is.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use futures::FutureExt;
use serde_json::{Value, json};
use test_support::property::sample;
use tokio::sync::Notify;
use tower::service_fn;
use tower_agent::callback::before_tool;
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentResponse, BoxError, Effect, Error, Interrupt, Message, ModelRequest, ModelResponse,
    Request, Resolution, Result, Tool, ToolRequest,
};
use tower_agent_durable::Sqlite;
use tower_agent_durable::journal::{
    Durable, Input, Intent, Journal, JournalError, OpenRun, RunEnd, RunKey, RunStatus, StepId,
    StepLease, StepRecord, StepState, UnfinishedStep,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::redact::{Detector, Redact};

use crate::support::folder::Folder;
use crate::support::place::Database;
use crate::support::server::Server;

/// The users. No random id, which is of small letters, holds their names.
const USERS: [&str; 2] = ["Ada", "Bob"];

/// The number of kills on each database: all of them at length.
const KILLS: u32 = 1000;
const SAMPLE: u32 = 50;

/// The number of points that a case without kills has at most.
const POINTS: u32 = 60;

/// The outside of all processes: a bank, and who has seen what.
#[derive(Default)]
struct World {
    /// The payments: the user, the key and the arguments.
    paid: Vec<(String, String, Value)>,
    /// The calls that the journal has said it keeps, by user.
    kept: HashSet<(String, String)>,
    /// The number of kills.
    kills: u32,
    /// The number of payments that an operator was asked about.
    asked: u32,
    /// The number of changed programs that were refused.
    refused: u32,
}

/// A process, which is lost at a point.
#[derive(Clone)]
struct Process {
    world: Arc<Mutex<World>>,
    /// The number of points before the one at which it is lost.
    left: Arc<Mutex<u32>>,
    is_lost: Arc<Notify>,
    /// The number of operations that it has sent to the journal and that have not returned.
    open: Arc<AtomicU32>,
}

impl Process {
    fn new(world: &Arc<Mutex<World>>, left: u32) -> Self {
        Self {
            world: world.clone(),
            left: Arc::new(Mutex::new(left)),
            is_lost: Arc::default(),
            open: Arc::default(),
        }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Comes to a point. From the one at which the process is lost nothing goes on.
    async fn point(&self) {
        let is_here = {
            let mut left = self.left.lock().unwrap();
            let is_here = *left == 0;
            *left = left.saturating_sub(1);
            is_here
        };
        if is_here {
            *self.left.lock().unwrap() = 0;
            self.is_lost.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

/// A journal with points before and after all that it does.
#[derive(Clone)]
struct Watched<J> {
    inner: J,
    process: Process,
}

impl<J> Watched<J> {
    /// Does something between two points.
    async fn operation<T>(&self, operation: impl Future<Output = T>) -> T {
        self.process.point().await;
        self.process.open.fetch_add(1, Ordering::SeqCst);
        let done = operation.await;
        self.process.open.fetch_sub(1, Ordering::SeqCst);
        self.process.point().await;
        done
    }
}

impl<J: Journal> Journal for Watched<J> {
    async fn start(&self, input: &Input) -> Result<OpenRun, JournalError> {
        self.operation(self.inner.start(input)).await
    }

    async fn earlier_steps(&self, run: &OpenRun) -> Result<Vec<StepId>, JournalError> {
        self.operation(self.inner.earlier_steps(run)).await
    }

    async fn begin(
        &self,
        run: &OpenRun,
        step: &StepId,
        intent: &Intent,
    ) -> Result<StepState, JournalError> {
        self.operation(self.inner.begin(run, step, intent)).await
    }

    async fn begin_again(&self, lease: StepLease) -> Result<StepLease, JournalError> {
        self.operation(self.inner.begin_again(lease)).await
    }

    async fn commit(&self, lease: &StepLease, record: &StepRecord) -> Result<(), JournalError> {
        let commit = async {
            self.inner.commit(lease, record).await?;
            let user = lease.run.user.as_deref().unwrap_or_default().to_owned();
            let kept = (user, lease.step.key());
            self.process.world().kept.insert(kept);
            Ok(())
        };
        self.operation(commit).await
    }

    async fn release(&self, lease: &StepLease) -> Result<(), JournalError> {
        self.operation(self.inner.release(lease)).await
    }

    async fn end(&self, run: &OpenRun, end: &RunEnd) -> Result<(), JournalError> {
        self.operation(self.inner.end(run, end)).await
    }
}

/// A program, as it was or changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Program {
    Same,
    AgentRenamed,
    ToolRenamed,
    InTeam,
    OtherInstructions,
}

const CHANGED: [Program; 4] = [
    Program::AgentRenamed,
    Program::ToolRenamed,
    Program::InTeam,
    Program::OtherInstructions,
];

/// Returns the address of a user, of which a part is redacted.
fn address_of(user: &str) -> String {
    format!("{user}@example.org, where {user} lives")
}

/// Returns an agent that finds the address of its user, pays to it and says so. The model has it
/// redacted, and a callback adds a field to the arguments of the payment.
fn agent(program: Program, user: &'static str, journal: impl Journal, process: &Process) -> Agent {
    let at = process.clone();
    let pay = match program {
        Program::ToolRenamed => "pay_out",
        _ => "pay",
    };
    let model = service_fn(move |request: ModelRequest| {
        let at = at.clone();
        async move {
            let results: Vec<_> = request
                .messages()
                .iter()
                .flat_map(Message::tool_results)
                .map(|result| result.text())
                .collect();
            let all = serde_json::to_string(request.messages()).unwrap();
            assert!(!all.contains("@example"), "the model reads {all}");
            let step = request.context().iteration();
            check_not_kept(&at, user, &format!(" {step} 0 model "));
            at.point().await;
            Ok::<_, BoxError>(match &results[..] {
                [] => ModelResponse::from_tool_calls([ToolCall::new("c0", "find", json!({}))]),
                [to] => {
                    let call = ToolCall::new("c1", pay, json!({ "to": to }));
                    ModelResponse::from_tool_calls([call])
                }
                [to, ..] => ModelResponse::from_text(format!("Paid to {to}.")),
            })
        }
    });
    let at = process.clone();
    let find = move |_: Value| {
        let at = at.clone();
        async move {
            at.point().await;
            address_of(user)
        }
    };
    let at = process.clone();
    let pays = move |arguments: Value, request: ToolRequest| {
        let at = at.clone();
        async move {
            at.point().await;
            check_not_kept(
                &at,
                user,
                &format!(" tool {}", request.context().step_path()),
            );
            let key = request.idempotency_key();
            at.world().paid.push((user.to_owned(), key, arguments));
            at.point().await;
            "paid"
        }
    };
    let redact = Redact::new([Detector::email()]).unwrap().numbered();
    let name = match program {
        Program::AgentRenamed => "clerk",
        _ => "payer",
    };
    let agent = Agent::builder(model)
        .name(name)
        .tool(Tool::function("find", "Finds the address.", find).effect(Effect::Pure))
        .tool(Tool::function_with(pay, "Pays.", pays))
        .callbacks(redact.restore_when(|_| true))
        .on_tool(Approval::of_tools([pay]))
        .on_tool(before_tool(|request: &mut ToolRequest| {
            if request.name().starts_with("pay") {
                request.arguments_mut()["currency"] = json!("EUR");
            }
            std::future::ready(Ok(()))
        }));
    let agent = match program {
        Program::OtherInstructions => agent.instructions("Be quick."),
        _ => agent,
    };
    let durable = Durable::new(Watched {
        inner: journal,
        process: process.clone(),
    });
    if program == Program::InTeam {
        let member = agent.build().unwrap();
        let team = Agent::sequential("team").agent(member);
        return team.global_callbacks(durable).build().unwrap();
    }
    agent.global_callbacks(durable).build().unwrap()
}

/// Fails if a call is made that the journal has the result of.
fn check_not_kept(process: &Process, user: &str, step: &str) {
    let world = process.world();
    let kept = world
        .kept
        .iter()
        .find(|(of, kept)| of == user && kept.contains(step));
    assert_eq!(kept, None, "it was made again");
}

/// Plays the person and the operator, who looks for the key of a payment at the bank.
fn answer(world: &Mutex<World>, user: &str, interrupt: &Interrupt) -> Resolution {
    if interrupt.reason != UnfinishedStep::REASON {
        return Resolution::resolved(&interrupt.id, Decision::Approve);
    }
    let mut world = world.lock().unwrap();
    world.asked += 1;
    let key = interrupt.payload["idempotency_key"].as_str().unwrap();
    let found = world
        .paid
        .iter()
        .any(|(of, paid, _)| of == user && paid == key);
    let answer = if found {
        UnfinishedStep::Done(json!("paid"))
    } else {
        UnfinishedStep::RunAgain
    };
    Resolution::resolved(&interrupt.id, answer)
}

/// Starts the run of a user, or goes on with it, until it has ended.
async fn go_on(
    database: &impl Database,
    program: Program,
    user: &'static str,
    process: &Process,
) -> Result<AgentResponse> {
    let key = RunKey::new("request 1").of(user);
    let agent = agent(program, user, database.clone(), process);
    loop {
        let next = match database.runs().get(&key).await {
            Err(JournalError::UnknownRun { .. }) => key.request("Pay me."),
            Err(error) => Err(error)?,
            Ok(run) => {
                let open = run.interrupts.iter();
                let answers: Vec<_> = open
                    .map(|open| answer(&process.world, user, open))
                    .collect();
                database
                    .runs()
                    .request(&key)
                    .await?
                    .with_resolutions(answers)
            }
        };
        let response = match agent.run(next).await {
            // What the lost process had sent to the server came later: the run is started again.
            Err(error) if is_taken_over(&error) => continue,
            response => response?,
        };
        if response.interrupts().is_empty() {
            return Ok(response);
        }
    }
}

fn is_taken_over(error: &Error) -> bool {
    matches!(error.downcast_ref(), Some(JournalError::TakenOver { .. }))
}

/// Returns a random number below this one, of a case.
fn random(seed: &mut u64, below: u32) -> u32 {
    // Marsaglia's xorshift, which is the same everywhere.
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    u32::try_from(*seed >> 33).unwrap() % below
}

/// Lets a changed program go on with a run that works and has a result. It makes no call.
async fn go_on_changed(database: &impl Database, program: Program, world: &Arc<Mutex<World>>) {
    for user in USERS {
        let key = RunKey::new("request 1").of(user);
        let Ok(run) = database.runs().get(&key).await else {
            continue;
        };
        let steps = database.runs().steps(&key).await.unwrap();
        let has_result = steps.iter().any(|step| step.ended_at.is_some());
        if run.status != RunStatus::Running || !has_result {
            continue;
        }
        // A run that goes on after an approval begins anew with its names.
        let next = database.runs().request(&key).await.unwrap();
        if !next.context().resolutions().is_empty() {
            continue;
        }
        let before = world.lock().unwrap().paid.clone();
        let process = Process::new(world, u32::MAX);
        let ended = go_on(database, program, user, &process).await;
        let error = ended.expect_err("another program goes on with the run");
        let is_refused = matches!(
            error.downcast_ref(),
            Some(JournalError::OtherProgram { .. } | JournalError::NonDeterminism { .. })
        );
        assert!(is_refused, "{program:?}: {error}");
        let mut world = world.lock().unwrap();
        assert_eq!(world.paid, before, "{program:?} pays");
        world.refused += 1;
    }
}

/// Makes a case: returns what the world has seen.
async fn make_case(database: &impl Database, case: u64) -> World {
    let world = Arc::<Mutex<World>>::default();
    let mut seed = case.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let kills = 1 + random(&mut seed, 4);
    let mut ended = None;
    let mut is_settled = true;
    for kill in 0..=kills {
        let left = if kill == kills {
            u32::MAX
        } else {
            random(&mut seed, POINTS)
        };
        let process = Process::new(&world, left);
        let waits = random(&mut seed, 4) > 0;
        {
            // Both in one process, at the same time. Dropped, they are lost.
            let [ada, bob] = USERS.map(|user| go_on(database, Program::Same, user, &process));
            let mut both = pin!(async { tokio::join!(ada, bob) });
            tokio::select! {
                biased;
                () = process.is_lost.notified() => {
                    world.lock().unwrap().kills += 1;
                    // Mostly the journal is done with what the process has sent before anybody goes
                    // on.
                    while waits && process.open.load(Ordering::SeqCst) > 0 {
                        assert!(both.as_mut().now_or_never().is_none(), "it ends although it is lost");
                        tokio::task::yield_now().await;
                    }
                }
                done = &mut both => ended = Some(done),
            }
        }
        let program = CHANGED[random(&mut seed, 4) as usize];
        // The database may still make a write of a lost process, of this one or of one before it.
        // After the write a run is another one, at any time.
        is_settled &= process.open.load(Ordering::SeqCst) == 0;
        if kill < kills && is_settled {
            go_on_changed(database, program, &world).await;
        }
    }
    let (ada, bob) = ended.unwrap();
    let world = Arc::into_inner(world).unwrap().into_inner().unwrap();
    check(&world, [ada, bob], database).await;
    world
}

/// Fails unless each user has paid once and reads nothing of the other.
async fn check(world: &World, ended: [Result<AgentResponse>; 2], database: &impl Database) {
    let mut keys = HashSet::new();
    for (user, ended) in USERS.into_iter().zip(ended) {
        let response = ended.unwrap();
        let paid = world.paid.iter().filter(|(of, ..)| of == user);
        let paid: Vec<_> = paid.map(|(_, key, arguments)| (key, arguments)).collect();
        assert_eq!(paid.len(), 1, "{user} has paid {paid:?}");
        let (key, arguments) = paid[0];
        assert_eq!(
            *arguments,
            json!({ "to": address_of(user), "currency": "EUR" })
        );
        assert!(keys.insert(key.clone()), "two users have one key");
        let seen = serde_json::to_string(response.messages()).unwrap();
        let others = USERS.into_iter().filter(|other| *other != user);
        for other in others {
            assert!(!seen.contains(other), "{user} reads {seen}");
        }
        assert_eq!(
            response.text(),
            format!("Paid to [email-1], where {user} lives.")
        );
        let info = database.runs().get(RunKey::new("request 1").of(user)).await;
        assert_eq!(info.unwrap().status, RunStatus::Completed);
    }
}

/// Makes cases until there were this many kills. `new` returns an empty database.
async fn kill<D: Database>(new: impl AsyncFn(u64) -> D) {
    let all = sample(SAMPLE, KILLS);
    let mut sums = World::default();
    let mut case = 0;
    while sums.kills < all {
        case += 1;
        let database = new(case).await;
        let failed = CaseName(case);
        let seen = make_case(&database, case).await;
        std::mem::forget(failed);
        sums.kills += seen.kills;
        sums.asked += seen.asked;
        sums.refused += seen.refused;
    }
    let World {
        kills,
        asked,
        refused,
        ..
    } = sums;
    println!(
        "{kills} kills in {case} cases, {asked} payments asked about, {refused} programs refused"
    );
    assert!(asked > all / 50, "asked {asked} times");
    assert!(refused > all / 100, "{refused} programs were refused");
}

/// Names the case when a test fails in it.
struct CaseName(u64);

impl Drop for CaseName {
    fn drop(&mut self) {
        eprintln!("in case {}", self.0);
    }
}

#[tokio::test]
async fn runs_in_sqlite_that_are_killed_at_random_pay_once_and_are_their_users_own() {
    let folder = Folder::new("kills");
    kill(async |case| {
        // One in eight: the others wait for no disk.
        if case % 8 > 0 {
            return Sqlite::in_memory().await.unwrap();
        }
        let file = folder.file(&format!("{case}.db"));
        Sqlite::open(file).await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn runs_on_a_server_that_are_killed_at_random_pay_once_and_are_their_users_own() {
    let Some(server) = Server::start("kills-server") else {
        return;
    };
    let database = server.connect().await;
    kill(async |_| {
        // Faster than another database.
        let runs = database.runs();
        for user in USERS {
            runs.delete_user(user).await.unwrap();
        }
        database.clone()
    })
    .await;
}
