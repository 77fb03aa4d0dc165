//! Durable runs: the results of model and tool calls survive the process.
//!
//! ```text
//! Durable<J>  ->  Bundle      where J: Journal, such as Sqlite or Postgres
//! ```
//!
//! A run writes the start and the result of each model and tool call to a journal. If the process
//! stops, start the same run again, in this process or another: calls that have returned are
//! replayed from the journal, and the run continues with the first that has not.
//!
//! ```
//! use serde_json::json;
//! use tower_agent::{Agent, AgentRequest, BoxError, Tool};
//! use tower_agent_durable::Sqlite;
//! use tower_agent_durable::journal::Durable;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let database = Sqlite::in_memory().await?; // `Sqlite::open("runs.db")`
//! let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Paid.")]);
//! let agent = Agent::builder(model.clone())
//!     .tool(Tool::function("pay", "Pays.", |_: serde_json::Value| "paid"))
//!     .global_callbacks(Durable::new(database.clone()))
//!     .build()?;
//!
//! let response = agent.run(AgentRequest::new("Pay.").with_run_id("invoice 7")).await?;
//! assert_eq!(response.text(), "Paid.");
//!
//! // Started again, it calls neither the model nor the tool.
//! let request = database.runs().request("invoice 7").await?;
//! assert_eq!(agent.run(request).await?.text(), "Paid.");
//! assert_eq!(model.requests().len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # What is repeated
//!
//! | a call that was running when the process stopped | |
//! |---|---|
//! | of a model, or of a tool that is [`Pure`](tower_agent::Effect::Pure) or [`Idempotent`](tower_agent::Effect::Idempotent) | is repeated |
//! | of an agent as a tool | is repeated; its own calls that have returned are replayed |
//! | of a tool that is [`Mutating`](tower_agent::Effect::Mutating), the default | is not repeated: the run is [interrupted](tower_agent::Interrupt) until you say with [`UnfinishedStep`] whether the call was carried out |
//!
//! A call of a mutating tool that has timed out is treated like one that was running. A tool that
//! passes its [`idempotency_key`](tower_agent::ToolRequest::idempotency_key) to the service that it
//! calls can be declared `Idempotent`.
//!
//! The question is kept in the conversation's [private
//! state](tower_agent::RunContext::private_state) until the call has a result. A run that continues
//! from the [checkpoint](tower_agent::Checkpoint), under whatever id, takes the answer or asks
//! again; an agent without a journal does not make the call. [`RunAgain`](UnfinishedStep::RunAgain)
//! makes it with the idempotency key that the question shows. As with every answer, resume each
//! checkpoint only once. The answer is what the model reads as the result, so the question is [for
//! the role](tower_agent::Interrupt::for_role) [`operator`](UnfinishedStep::ROLE): the servers of
//! AG-UI and MCP do not take it from a client without that role.
//!
//! If a run is started again, a model call that has failed is repeated. A tool call that has failed
//! is not, since the model has read the error. An interrupt leaves its call open, as in any run.
//!
//! A replayed call has the same [effects](tower_agent::context::Effects) on the run as the
//! original: on the state, the private state, the tokens and the budgets, each once. What its
//! callbacks and layers do besides, such as telemetry, is not repeated. Its stream shows the
//! response as one attempt. [`Values`](tower_agent::context::Values) are not kept.
//!
//! - If parallel tools change the same key of the state, the replay keeps the order of their
//!   changes. A repeated call changes the key in its original turn: prefer a key for each tool.
//! - The time limit of a budget starts anew in each process. An account that was
//!   [restored](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/budget/struct.Account.html)
//!   from another process must not contain what the run has spent: the replay charges it again.
//! - Several budgets of a run need
//!   [names](https://docs.rs/tower-agent-middleware/latest/tower_agent_middleware/budget/struct.Budget.html#method.named).
//!
//! # Where to register it
//!
//! In the [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) of the outermost agent,
//! or in the callbacks of [one run](tower_agent::AgentRequest::with_callbacks). It is a
//! [journal](tower_agent::callback::Bundle::journal): everything else is inside, wherever it is
//! registered: retries, fallbacks, timeouts, approvals, redaction, telemetry. Put no retry around
//! the agent: each attempt would get the stored results, errors included. A layer that sends a
//! request of its own, instead of the one that it received, makes the run fail.
//!
//! Between its calls, a run must be deterministic. Take the time and random numbers from
//! [`Durable::value`] or from [`RunContext::chance`](tower_agent::RunContext::chance), and read
//! data that changes in a tool. If a call differs from the one in the journal, the run fails with
//! [`NonDeterminism`](JournalError::NonDeterminism), which says how it differs. A parallel team
//! with an [`until`](tower_agent::agent::TeamBuilder::until) goes by which member is first, and one
//! that [allows failures](tower_agent::agent::TeamBuilder::allow_failures) by which of them fail,
//! and a model call that has failed is repeated: let no other call follow such a team in the same
//! run.
//!
//! The program of a run is the one that began it. If an agent or a tool was renamed, or an agent
//! was put into a team, its calls have other names than those in the journal. The first of them
//! that the journal does not have is refused before it is made, with
//! [`OtherProgram`](JournalError::OtherProgram), which says which call of the run this program does
//! not come to.
//!
//! # Whose run it is
//!
//! A run belongs to the user of its session or thread, or of its [`RunKey`]. The user is a part of
//! the key under which the journal has the run: two users may choose one run id, and neither reads
//! the other's answers. So the id may come from a client, such as in an `Idempotency-Key` header,
//! if the user comes from its login. Runs without a user share their ids: choose these yourself.
//!
//! # Resuming
//!
//! Resume a run that waits with its [request](Runs::request) from the journal and the resolutions
//! of its [interrupts](RunInfo::interrupts). It keeps its run id.
//!
//! An answer that a run has got is kept. If the process is lost in the call, the operator alone is
//! asked about the call, and support or the user not again, whoever goes on with the run.
//!
//! A run in a session or a thread goes on only there: the request of a session's run names the
//! session, and is for the agent with the session layer around it. When the conversation goes on
//! with another run, one that waits is over, and listed as
//! [`Completed`](RunStatus::Completed).
//!
//! The same request may be delivered twice: both deliveries have the same outcome. After a later
//! request has resumed the run, an earlier one is refused with
//! [`EarlierRequest`](JournalError::EarlierRequest), also when the run has ended, since it would
//! repeat calls. A different answer to a question that has been answered is refused likewise, and
//! so is whatever continues from before the latest request: take that of the journal, also to
//! answer another one of several questions.
//!
//! An interrupt with a [time](tower_agent::Interrupt::with_expiry) is answered by the run that
//! starts within it. A later answer is refused with [`Unfit`](JournalError::Unfit); the
//! [request](Runs::request) from the journal then has the outcome that the interrupt names.
//!
//! A run id stands for its request. One that differs in anything, such as the text, the settings or
//! the state, is refused with [`OtherRequest`](JournalError::OtherRequest), also when the run has
//! completed or failed: use another run id. Only a request that continues from the checkpoint of a
//! completed run is its next turn, as in a session. Calls of that turn have other [idempotency
//! keys](tower_agent::ToolRequest::idempotency_key) than those before.
//!
//! # Two processes
//!
//! A process that starts a run which has not ended takes it over: further writes of another process
//! are refused with [`TakenOver`](JournalError::TakenOver), and it starts no more calls. If it was
//! calling a mutating tool, the run asks whether that call was carried out. Nothing can stop the
//! other process from making that one call, whose start the journal has. So start a run again, and
//! answer [`RunAgain`](UnfinishedStep::RunAgain), only when its process has stopped.
//!
//! A run that works shows it in the database every [10 seconds](RunInfo::HEARTBEAT), and
//! [`is_alive`](RunInfo::is_alive) says whether it does. [`resume_lost`](Runs::resume_lost) goes on
//! with the others after a crash; of several servers that call it, one goes on with each run. A run
//! that has ended with an error of the journal, such as `NonDeterminism`, is listed as
//! [`Failed`](RunStatus::Failed) with it. A program that is refused before it comes to a call,
//! since its agent has another name, leaves a run that waits or was lost as it was.
//!
//! # More runs than the database can take
//!
//! [`max_runs`](Durable::max_runs) of a process are made at once; others wait before they begin.
//! Those that are made take turns with the database. One that holds a result waits until it is
//! stored, as long as other runs keep the connections busy, and no run is aborted after its calls
//! were paid for.
//!
//! # When the database fails
//!
//! If the journal cannot be written, because the disk is full or the server is away, the run stops
//! with an abort, before or after the call; no run continues without its journal. A mutating tool
//! is called only after the journal has its start. When the database works, start the run again:
//! calls in the journal are replayed. The run asks about a mutating call whose end the journal does
//! not have, even if the call was not made, as when only the database's answer was lost.
//!
//! A result that was written is on disk: neither `kill -9` nor a power cut loses it. A call that
//! may be repeated, such as that of a model, waits for the disk once, when it has ended, and a
//! mutating one also before it begins. A disk that loses data which it has confirmed, or an older
//! copy of the database, loses the end of the journal. The run then continues from what is left and
//! repeats the calls after it, mutating ones without a question, with the same [idempotency
//! keys](tower_agent::ToolRequest::idempotency_key): a service that receives the key does not act
//! twice.
//!
//! # Old runs
//!
//! A message is stored once. A run in a session or a thread of the same database refers to the
//! messages that are there, as they were then, whatever the conversation does later; the run has
//! the others, and its steps have what it adds. If the session is deleted, the run stays in the
//! list, with its steps, and cannot go on: [`SessionDeleted`](JournalError::SessionDeleted). A run
//! whose conversation is in another store, or comes with its request, has all of the messages
//! itself.
//!
//! Runs stay in the journal until they are deleted. [`delete_ended`](Runs::delete_ended) deletes
//! those that ended before a given time, and [`delete_untouched`](Runs::delete_untouched) those
//! that wait or whose process has died. `delete_user` of the database deletes all of one user, and
//! that of an engine what the engine has, too. SQLite overwrites what is deleted in its file and
//! its log; PostgreSQL vacuums it. Backups have it as long as they are kept.
//!
//! # A whole program
//!
//! It is killed in the middle of a payment, lists its steps, asks about the payment, and continues:
//!
//! ```no_run
#![doc = include_str!("../../examples/durable.rs")]
//! ```
//!
//! # Secrets
//!
//! Nothing is encrypted by this crate: [encrypt the disk](crate::guide::deployment#encryption). The journal contains the request that starts a run, the responses of its calls, and hashes of their
//! requests. With a `Redact` inside, responses contain placeholders, and the original texts are in the
//! private state, which the journal keeps, as a [`Checkpoint`](tower_agent::Checkpoint) does. Protect the
//! database accordingly.

#[cfg(all(feature = "console", any(feature = "postgres", feature = "sqlite")))]
mod console;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod databases;
mod durable;
mod earlier_steps;
mod error;
mod fingerprint;
mod input;
mod intent;
#[expect(
    clippy::module_inception,
    reason = "a trait is in the file of its name"
)]
mod journal;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod kept_in;
mod known_messages;
mod known_run;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod lost_runs;
mod next_request;
mod open_run;
mod question;
mod record;
mod run_end;
mod run_info;
mod run_key;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod run_messages;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod run_query;
mod run_service;
mod run_status;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod run_summary;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod runs;
mod step_id;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod step_info;
mod step_request;
mod step_service;
mod steps;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod stored_messages;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tables;
mod unfinished;
mod version;

pub use self::durable::Durable;
pub use self::error::JournalError;
pub use self::fingerprint::Fingerprint;
pub use self::input::Input;
pub use self::intent::Intent;
pub use self::journal::{Journal, StepLease, StepState};
pub use self::known_run::{KnownRun, check_answers};
pub use self::next_request::next_request;
pub use self::open_run::OpenRun;
pub use self::record::{StepOutcome, StepRecord};
pub use self::run_end::RunEnd;
pub use self::run_info::RunInfo;
pub use self::run_key::RunKey;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::run_query::RunQuery;
pub use self::run_status::RunStatus;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::runs::Runs;
pub use self::step_id::{StepId, StepKind};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::step_info::StepInfo;
pub use self::unfinished::UnfinishedStep;
