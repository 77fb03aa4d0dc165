//! Durable runs on several machines, with Restate.
//!
//! ```text
//! Engine                     ->  a run is started, resumed, awaited, cancelled: in any process
//! Worker::builder(&Engine)   ->  a process that makes runs
//! Durable<Engine>            ->  their journal
//! ```
//!
//! [Restate](https://docs.restate.dev) is a server, or a cluster of them, with a replicated log. It
//! hands each run to one of the workers that are behind an address, and to another if that one stops. The
//! run goes on after its last call.
//!
//! ```no_run
//! use tokio::net::TcpListener;
//! use tower_agent::model::ModelService;
//! use tower_agent::{Agent, AgentRequest, BoxError};
//! use tower_agent_durable::engine::restate::{Engine, Worker};
//! use tower_agent_durable::journal::{Durable, RunEnd};
//!
//! // On each machine:
//! async fn work(model: impl ModelService) -> Result<(), BoxError> {
//!     let engine = Engine::new("http://restate:8080")?;
//!     let agent = Agent::builder(model).global_callbacks(Durable::new(engine.clone())).build()?;
//!
//!     let listener = TcpListener::bind("0.0.0.0:9080").await?;
//!     let worker = Worker::builder(&engine).agent("payer", agent).start(listener);
//!     tokio::signal::ctrl_c().await?;
//!     worker.stop().await;
//!     Ok(())
//! }
//!
//! // Anywhere:
//! async fn pay() -> Result<(), BoxError> {
//!     let engine = Engine::new("http://restate:8080")?;
//!     let request = AgentRequest::new("Pay invoice 7.").with_run_id("invoice 7");
//!     match engine.start("payer", request).await?.end().await? {
//!         RunEnd::Completed { checkpoint, .. } => println!("{:?}", checkpoint.messages.last()),
//!         RunEnd::Waiting { checkpoint, .. } => println!("asks: {:?}", checkpoint.interrupts),
//!         end => println!("{end:?}"),
//!     }
//!     Ok(())
//! }
//! # drop((work(tower_agent::testing::ScriptedModel::new([])), pay()));
//! ```
//!
//! # Setting it up
//!
//! Start a Restate server, and workers behind one address, such as a Kubernetes service. Register the
//! address once, and again after an update of this crate: `restate deployments register --force
//! http://workers:9080`. All workers have the same agents.
//!
//! - Whoever reaches the server's ingress can start, resume and read runs; whoever reaches the workers
//!   can make them work. Let neither be reached from outside. Connections are not encrypted.
//! - Each run takes one of the invocations that a server makes at once, and its steps take another each
//!   for a moment. If runs take all of them, nothing goes on, so set
//!   `worker.invoker.concurrent-invocations-limit` well above the
//!   [`concurrency`](WorkerBuilder::concurrency) of all workers together.
//! - A request, and what a call has returned, is at most as large as the server's message size limit,
//!   32 MiB by default. A larger one fails, and with it the run.
//! - What a run has kept stays until it is [deleted](Engine::delete).
//!
//! # What happens when
//!
//! | what stops | what happens |
//! |---|---|
//! | a worker | the server hands its runs to others; of what was running, the [journal](crate::journal#what-is-made-again) says what is made again |
//! | a worker that is only cut off | likewise; what it still writes is refused |
//! | the server | its runs stop, and go on when it is back; in a cluster, at once |
//! | all workers | runs wait for one |
//! | the agent, with an error | the run has [failed](crate::journal::RunEnd::Failed), and goes on when its request is started again |
//! | somebody kills an invocation of `TowerAgentRun` | [`Stopped`](RestateError::Stopped); the run goes on when its request is started again |
//!
//! # How it is made
//!
//! The journal of a run is a virtual object, `TowerAgentJournal`, whose key is the run's id. The server
//! calls its handlers one at a time, so that each step is checked and kept at once, under its name. A run
//! is a call of another, `TowerAgentRun`, whose handler calls the agent. Steps are not steps of Restate,
//! which go by their order and one after another: here, tools of one turn run side by side.
mod engine;
mod error;
mod http;
mod ingress;
mod journal;
mod journal_object;
mod run_handle;
mod run_object;
mod wire;
mod worker;

pub use self::engine::Engine;
pub use self::error::RestateError;
pub use self::run_handle::RunHandle;
pub use self::worker::{Worker, WorkerBuilder};
