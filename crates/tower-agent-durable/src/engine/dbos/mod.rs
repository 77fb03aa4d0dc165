//! Durable runs on several machines, with [DBOS](https://docs.rs/dbos) in PostgreSQL.
//!
//! ```text
//! Engine  ->  RunHandle    AgentRequest in, RunEnd out, in any process
//! Worker                   makes the runs of its agents, one or more to a machine
//! ```
//!
//! A request waits in a queue until a worker that has the agent is free. If the worker's machine is
//! lost, the run is [taken over](Engine::take_over) by another, which goes on with the first call that
//! has not returned, as the [journal](crate::journal) has it.
//!
//! ```no_run
//! use tower_agent::model::ModelService;
//! use tower_agent::{Agent, AgentRequest, BoxError, Resolution};
//! use tower_agent_durable::Postgres;
//! use tower_agent_durable::engine::dbos::{Engine, Worker};
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
//!         let answers = checkpoint.interrupts.iter().map(|it| Resolution::resolved(&it.id, true));
//!         engine.resume(run.run_id(), answers).await?;
//!     }
//!     end => println!("{end:?}"),
//! }
//! # worker.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is made once
//!
//! | delivered twice | |
//! |---|---|
//! | a request that starts a run | is one run: both get its end |
//! | the resolutions that resume it | resume it once: both get its end |
//! | another request of the run, or another resolution | is refused |
//!
//! A run that has failed goes on when it is started or resumed again; one that was cancelled does not.
//! The requests of a run follow one another: each begins when the one before it has ended.
//!
//! A request crosses processes as data: tools, callbacks and an answer format belong to the worker's
//! agent, and a request that has its own is refused.
//!
//! # What the engine does not do
//!
//! It does not notice that a machine is lost: something that does calls
//! [`take_over`](Engine::take_over). A worker that was only slow is fenced off by the journal.
//!
//! Workers with different versions of a program share a queue. If a run would not go on as it began, the
//! journal says so with [`NonDeterminism`](crate::journal::JournalError::NonDeterminism), and the run
//! fails; started again, it may find a worker that has the right one.
//!
//! A run that an engine has started is its own: do not call an agent with the same run id.
//!
//! # In the database
//!
//! DBOS has a schema of its own, `dbos`, in which each request is a workflow with the run's id and a
//! number, such as `invoice 7/1`. Its input is the request and its output is how the run has ended:
//! protect it like the journal. Set `idle_in_transaction_session_timeout` for the database, since a
//! machine that stalls in the middle of a write keeps others out until the server ends its session.

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
