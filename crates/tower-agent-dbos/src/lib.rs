//! Durable runs on several machines, with [DBOS](https://docs.rs/dbos) in PostgreSQL.
//!
//! ```text
//! Engine  ->  RunHandle    AgentRequest in, RunEnd out, in any process
//! Worker                   executes the runs of its agents, one or more on each machine
//! ```
//!
//! A request waits in a queue until a worker that has the agent is free. If the worker's machine is
//! lost, another worker [takes the run over](Engine::take_over) and continues it with the first
//! call that has not returned, according to the [journal](tower_agent_durable::journal).
//!
//! ```no_run
//! use tower_agent::model::ModelService;
//! use tower_agent::{Agent, AgentRequest, BoxError, Resolution};
//! use tower_agent_durable::Postgres;
//! use tower_agent_dbos::{Engine, Worker};
//! use tower_agent_durable::journal::{Durable, RunEnd};
//!
//! # async fn example(model: impl ModelService, machine: &str) -> Result<(), BoxError> {
//! let url = std::env::var("DATABASE_URL")?;
//! let journal = Postgres::connect(&url).await?;
//! let engine = Engine::connect(&url, journal.runs()).await?;
//!
//! // On each machine:
//! let durable = Durable::new(journal);
//! let agent = Agent::builder(model).name("clerk").global_callbacks(durable).build()?;
//! let worker = Worker::builder(&engine, machine).agent(agent).start().await?;
//!
//! // In any process:
//! let request = AgentRequest::new("Pay invoice 7.").with_run_id("invoice 7");
//! let run = engine.start("clerk", request).await?;
//! match run.end().await? {
//!     RunEnd::Waiting { checkpoint, .. } => {
//!         let open = checkpoint.head.interrupts.iter();
//!         let answers = open.map(|interrupt| Resolution::resolved(&interrupt.id, true));
//!         engine.resume(run.run_id(), answers).await?;
//!     }
//!     end => println!("{end:?}"),
//! }
//! # worker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Requests that are delivered twice
//!
//! | | |
//! |---|---|
//! | a request that starts a run | is one run: both callers receive its end |
//! | the resolutions that resume it | resume it once: both callers receive its end |
//! | another request of the run, or another resolution | is refused |
//!
//! A run that has failed continues when it is started or resumed again; one that was cancelled does
//! not. The requests of a run follow one another: each begins when the one before it has ended.
//!
//! A request crosses processes as data: tools, callbacks and an answer format belong to the
//! worker's agent, and a request that has its own is refused.
//!
//! # What the engine does not do
//!
//! It does not notice that a machine is lost: something that does calls
//! [`take_over`](Engine::take_over). A worker that was only slow is fenced off by the journal.
//!
//! Workers with different versions of a program share a queue. If a worker's version does not
//! continue a run as it began, the run fails with
//! [`NonDeterminism`](tower_agent_durable::journal::JournalError::NonDeterminism). Start it again,
//! and a worker with the right version may get it.
//!
//! A run belongs to the user of its [key](tower_agent_durable::journal::RunKey::request): two users
//! may give their runs the same id.
//!
//! A run that an engine has started belongs to the engine: do not call an agent with the same run
//! id.
//!
//! # In the database
//!
//! DBOS has a schema of its own, `dbos`, in which each request is a workflow with the run's id and
//! a number, such as `invoice 7/1`. Its input is the request, and its output is the end of the run:
//! protect it like the journal. Set `idle_in_transaction_session_timeout` for the database, since a
//! machine that stalls in the middle of a write keeps others out until the server ends its session.
//!
//! Requests stay there until the run is deleted with [`delete`](Engine::delete), which deletes it
//! in the journal as well, or with all of its user by [`delete_user`](Engine::delete_user).
//! `delete_ended` and `delete_user` of the journal alone leave the requests of DBOS where they are.
//!
//! Leave the server's `synchronous_commit` on. If it is off, a server that crashes may lose the
//! latest writes of DBOS: a request that was started, which then runs only if it is started again,
//! or the end of a run, which is then replayed. No step is repeated, since the journal sets
//! `synchronous_commit` itself.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod engine;
mod error;
mod run;
mod run_handle;
mod submission;
mod worker;

pub use self::engine::Engine;
pub use self::error::DbosError;
pub use self::run_handle::RunHandle;
pub use self::worker::{Worker, WorkerBuilder};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
