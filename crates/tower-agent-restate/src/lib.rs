//! Durable runs on several machines, with Restate.
//!
//! ```text
//! Engine                     ->  starts, resumes, awaits and cancels runs, from any process
//! Worker::builder(&Engine)   ->  executes runs
//! Durable<Engine>            ->  the journal of the runs
//! ```
//!
//! [Restate](https://docs.restate.dev) is a server, or a cluster of servers, with a replicated log.
//! It gives each run to one of the workers behind an address. If that worker stops, another one
//! continues the run after its last call.
//!
//! ```no_run
//! use tokio::net::TcpListener;
//! use tower_agent::model::ModelService;
//! use tower_agent::{Agent, AgentRequest, BoxError};
//! use tower_agent_restate::{Engine, Worker};
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
//!         RunEnd::Waiting { checkpoint, .. } => println!("asks: {:?}", checkpoint.head.interrupts),
//!         end => println!("{end:?}"),
//!     }
//!     Ok(())
//! }
//! # drop((work(tower_agent_test::ScriptedModel::new([])), pay()));
//! ```
//!
//! # Setting it up
//!
//! Start a Restate server, and workers behind one address, such as a Kubernetes service. Register
//! the address once, and again after an update of this crate: `restate deployments register --force
//! http://workers:9080`. All workers must have the same agents.
//!
//! - Workers serve nobody but their server if they have its [key](WorkerBuilder::identity_key).
//!   Without it, anyone who can reach them can make them execute runs. They listen without TLS: put
//!   a proxy that has a certificate in front of them unless the network is private, and register
//!   its address with `https://`.
//! - Anyone who can reach the server's ingress can start, resume and read runs. Put a proxy in
//!   front of it that encrypts and asks for a token, as Restate Cloud does, and give the
//!   [token](Engine::token) to the engine, or keep it in a private network. The server's admin port
//!   is for operators alone.
//! - The server's data is not encrypted: use an encrypted disk.
//! - A run occupies one of the server's concurrent invocations, and each of its steps occupies
//!   another one for a moment. If runs occupy all of them, the server stands still. So set
//!   `worker.invoker.concurrent-invocations-limit` well above the
//!   [`concurrency`](WorkerBuilder::concurrency) of all workers together.
//! - A request, and the result of a call, may have the size of the server's message size limit, 32
//!   MiB by default. A larger one fails the run.
//! - The data of a run stays until it is [deleted](Engine::delete), alone or with all [of its
//!   user](Engine::delete_user). The answers of calls are remembered for ten minutes.
//!
//! A run belongs to the user of its [key](tower_agent_durable::journal::RunKey::request), its
//! session or its thread: two users may give their runs the same id.
//!
//! # What happens if
//!
//! | | |
//! |---|---|
//! | a worker stops | the server gives its runs to others; the [journal](tower_agent_durable::journal#what-is-repeated) says which calls are repeated |
//! | a worker is cut off | likewise; what it still writes is refused |
//! | the server stops | its runs stop, and continue when it is back; in a cluster, at once |
//! | all workers stop | runs wait for one |
//! | the agent fails | the run has [failed](tower_agent_durable::journal::RunEnd::Failed); start its request again to continue it |
//! | an operator kills an invocation of `TowerAgentRun` | the run is [stopped](RestateError::Stopped); start its request again to continue it |
//!
//! # How it works
//!
//! The journal of a run is a virtual object, `TowerAgentJournal`, whose key is that of the run.
//! Another one, `TowerAgentUser`, knows the runs of each user. The server calls its handlers one at
//! a time, so a step is checked and stored in one piece, under its name. A run is an invocation of
//! a second object, `TowerAgentRun`, whose handler calls the agent. The steps of a run are not
//! steps of Restate, which must come one after another in a fixed order: the tools of one turn run
//! in parallel.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Tests may; the library may not.
#![cfg_attr(
    not(test),
    warn(clippy::expect_used, clippy::panic, clippy::unwrap_used)
)]

mod engine;
mod error;
mod http;
mod ingress;
mod journal;
mod journal_object;
mod run_handle;
mod run_object;
mod user_object;
mod wire;
mod worker;

pub use self::engine::Engine;
pub use self::error::RestateError;
pub use self::run_handle::RunHandle;
pub use self::worker::{Worker, WorkerBuilder};

/// The README's example, so that it compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
