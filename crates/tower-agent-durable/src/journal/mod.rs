//! Durable runs: what the model and the tools have returned outlives the process.
//!
//! ```text
//! Durable<J>  ->  Bundle      where J: Journal, such as Sqlite or Postgres
//! ```
//!
//! A run writes to a journal what each of its model and tool calls is about to do, and what it has
//! returned. If the process stops, the same run is made again, in the same process or another: calls
//! that have returned are answered from the journal, and the run goes on with the first that has not.
//!
//! ```
//! use serde_json::json;
//! use tower_agent::testing::{ScriptedModel, Turn};
//! use tower_agent::{Agent, AgentRequest, BoxError, Tool};
//! use tower_agent_durable::Sqlite;
//! use tower_agent_durable::journal::Durable;
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
//! // Made again, it calls neither the model nor the tool.
//! let request = database.runs().request("invoice 7").await?;
//! assert_eq!(agent.run(request).await?.text(), "Paid.");
//! assert_eq!(model.requests().len(), 2);
//! # Ok(())
//! # }
//! ```
//!
//! # What is made again
//!
//! | a call that was running when the process stopped | is |
//! |---|---|
//! | of a model, or of a tool that is [`Pure`](tower_agent::Effect::Pure) or [`Idempotent`](tower_agent::Effect::Idempotent) | made again |
//! | of an agent as a tool | entered again; its own calls that have returned are not made again |
//! | of a tool that is [`Mutating`](tower_agent::Effect::Mutating), the default | not made again: the run [waits](tower_agent::Interrupt) for somebody who knows whether it was done, and answers with [`Unfinished`] |
//!
//! So is a call of a mutating tool whose time has run out. A tool that passes
//! [`idempotency_key`](tower_agent::ToolRequest::idempotency_key) to its service can be declared
//! `Idempotent`.
//!
//! A model call that has failed is made again when the run is; a tool that has failed is not, since the
//! model was told. An interrupt leaves its call open, as in any run.
//!
//! A call that is answered from the journal has the [effects](tower_agent::context::Effects) of the one
//! that was made: the state, the private state, the tokens, and what was charged to budgets, each once.
//! What its callbacks and layers do besides, such as telemetry, is not done again. Its stream shows the
//! response as one attempt. [`Values`](tower_agent::context::Values) are not kept.
//!
//! - Of tools that run at the same time and change one key of the state, the later change stands, as it
//!   did at first. One that is made again has its turn again: let it change a key of its own.
//! - The time of a budget is that of the process. An account that is
//!   [restored](tower_agent::middleware::budget::Account) from what another process has saved contains
//!   what replayed calls are charged: give a run that goes on an account without it.
//! - Several budgets of a run need [names](tower_agent::middleware::budget::Budget::named).
//!
//! # Where it stands
//!
//! First in the [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) of the outermost
//! agent, so that everything else is inside: retries, fallbacks, timeouts, approvals, redaction,
//! telemetry. Anything outside would be asked again about a call that is done, or would repeat it, and
//! the agent is not built. A layer that makes its own request instead of passing on the one that it
//! received makes the run fail.
//!
//! What happens between the calls must depend on them alone. Take the time and chance from
//! [`Durable::value`] or from [`RunContext::chance`](tower_agent::RunContext::chance); data of the
//! program that changes belongs into a tool. If a call is not the one that was made before, the run
//! fails with [`NonDeterminism`](JournalError::NonDeterminism), which says in what it differs.
//!
//! # Resuming
//!
//! A run that waits goes on with the [request](Runs::request) that the journal has for it and the
//! resolutions of its [interrupts](RunInfo::interrupts). Its run id stays.
//!
//! The same request may be delivered twice: it has the same outcome. Once a later one has resumed the
//! run, an earlier one is refused with [`EarlierRequest`](JournalError::EarlierRequest), also when the
//! run has ended, since it would make the calls again. So is a second answer once the run has completed.
//!
//! # Two processes
//!
//! Whoever starts a run that is not at its end takes it over: what another process still writes is
//! refused with [`TakenOver`](JournalError::TakenOver), and it begins no other call. A mutating tool that
//! it was calling is asked about; nothing keeps a process that goes on from making that one call, whose
//! start the journal has. So start a run again only when its process has stopped, or answer
//! [`RunAgain`](Unfinished::RunAgain) only then.
//!
//! # A database that fails
//!
//! If the journal cannot be written, because the disk is full or the server is away, the run stops with
//! an abort, before the call or after it; nothing goes on without a journal. A mutating tool is not
//! called unless the journal has its start. Start the run again once the database works: what the
//! journal has is not made again. A mutating call whose end it does not have is asked about, also if it
//! was not made, as when only the answer of the database was lost.
//!
//! What a journal has returned from is on the disk: neither `kill -9` nor a power cut loses it. A disk
//! that does not keep what it said, or an older copy of the database, has lost the end of the journal.
//! The run goes on from what is left: the calls after it are made again, mutating ones without a
//! question, with the same [idempotency key](tower_agent::ToolRequest::idempotency_key). A service that
//! receives the key does not act twice.
//!
//! # Old runs
//!
//! Runs stay in the journal until they are deleted. [`delete_ended`](Runs::delete_ended) deletes those
//! that have ended before a time, and none that is running or waits.
//!
//! # A whole program
//!
//! It dies in the middle of a payment, lists what it did, asks, and goes on:
//!
//! ```no_run
#![doc = include_str!("../../examples/durable.rs")]
//! ```
//!
//! # Secrets
//!
//! The journal has the request that starts a run, the responses of its calls, and hashes of their
//! requests. With a `Redact` inside, responses contain placeholders; the texts that they stand for are in
//! the private state, which the journal has to keep, as a [`Checkpoint`](tower_agent::Checkpoint) does:
//! protect the database likewise.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod detached;
mod durable;
mod error;
mod fingerprint;
mod intent;
#[expect(clippy::module_inception, reason = "a trait is in the file of its name")]
mod journal;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
mod known_run;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
mod next_request;
#[cfg(feature = "postgres")]
mod postgres;
mod record;
mod run_end;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
mod run_info;
mod run_service;
mod run_status;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod runs;
#[cfg(feature = "sqlite")]
mod sqlite;
mod step_id;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod step_info;
mod step_request;
mod step_service;
mod steps;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tables;
mod unfinished;
mod version;

pub use self::durable::Durable;
pub use self::error::JournalError;
pub use self::fingerprint::Fingerprint;
pub use self::intent::Intent;
pub use self::journal::{Begun, Input, Journal, Lease, OpenRun};
#[cfg(feature = "restate")]
pub(crate) use self::known_run::KnownRun;
#[cfg(feature = "restate")]
pub(crate) use self::next_request::next_request;
pub use self::record::{Outcome, Record};
pub use self::run_end::RunEnd;
#[cfg(any(feature = "postgres", feature = "restate", feature = "sqlite"))]
pub use self::run_info::RunInfo;
#[cfg(feature = "dbos")]
pub(crate) use self::run_service::input;
pub use self::run_status::RunStatus;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::runs::Runs;
pub use self::step_id::{StepId, StepKind};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::step_info::StepInfo;
#[cfg(any(feature = "dbos", feature = "restate"))]
pub(crate) use self::steps::Steps;
pub use self::unfinished::Unfinished;
