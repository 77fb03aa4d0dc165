use std::fmt;
use std::future::Future;
use std::sync::Arc;

use dbos::{Config, DBOS, WorkflowRef};
use tower_agent::agent::SavedRequest;
use tower_agent::stream::Event;
use tower_agent::{Agent, Error};

use crate::engine::{APPLICATION, Engine, VERSION, queue};
use crate::error::DbosError;
use crate::run::{OnEvent, make};
use tower_agent_durable::journal::RunEnd;

/// The default number of runs of an agent that a worker makes at once.
const CONCURRENCY: usize = 16;

/// A process that makes runs. Created by [`Worker::builder`].
///
/// It takes the runs of its agents from their queues, which it shares with the other workers that
/// have an agent of the same name: the machines of a cluster each have one.
#[must_use = "it works until it is stopped"]
pub struct Worker {
    engine: Engine,
    dbos: DBOS,
    id: String,
}

/// Configures a [`Worker`].
#[must_use = "a worker works once it is started"]
pub struct WorkerBuilder {
    engine: Engine,
    id: String,
    agents: Vec<Agent>,
    concurrency: usize,
    on_event: Option<OnEvent>,
}

impl Worker {
    /// Configures a worker.
    ///
    /// `id` is its own among all workers, such as the name of the machine or pod. A worker that
    /// starts takes over what an earlier one with its id has left.
    pub fn builder(engine: &Engine, id: impl Into<String>) -> WorkerBuilder {
        WorkerBuilder {
            engine: engine.clone(),
            id: id.into(),
            agents: Vec::new(),
            concurrency: CONCURRENCY,
            on_event: None,
        }
    }

    /// Stops: the runs that it makes are dropped, and given to other workers.
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be given away. Another worker with the same id takes them, or
    /// [`take_over`](Engine::take_over).
    pub async fn stop(self) -> Result<(), DbosError> {
        // In this order: while this worker still works, it would take its runs back.
        self.dbos.shutdown().await;
        self.engine.take_over(&self.id).await?;
        Ok(())
    }
}

impl WorkerBuilder {
    /// Adds an agent whose runs it makes.
    pub fn agent(mut self, agent: Agent) -> Self {
        self.agents.push(agent);
        self
    }

    /// Sets how many runs of an agent each of its workers executes at once. The setting of the
    /// worker that started last counts for all. Defaults to 16.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs;
        self
    }

    /// Sets a function that receives the events of the runs as they happen, each with the run's id,
    /// for example to publish them. Without one, models do not stream.
    ///
    /// A run that continues after a crash sends the events of the replayed calls again.
    pub fn on_event<F, O>(mut self, function: F) -> Self
    where
        F: Fn(Arc<str>, Event) -> O + Send + Sync + 'static,
        O: Future<Output = ()> + Send + 'static,
    {
        self.on_event = Some(Arc::new(move |run, event| Box::pin(function(run, event))));
        self
    }

    /// Starts the worker.
    ///
    /// # Errors
    ///
    /// Fails with [`NotDurable`](DbosError::NotDurable) for an agent without a journal, for two
    /// agents of one name, for a concurrency of 0, and if the database fails.
    pub async fn start(self) -> Result<Worker, DbosError> {
        let Self {
            engine,
            id,
            agents,
            concurrency,
            on_event,
        } = self;
        let config = Config {
            app_version: Some(VERSION.to_owned()),
            executor_id: Some(id.clone()),
            use_listen_notify: false,
            migrate: false,
            listen_queues: Some(agents.iter().map(|agent| queue(agent.name())).collect()),
            ..Config::new(APPLICATION, engine.url())
        };
        let dbos = DBOS::new(config);
        for agent in agents {
            let name = agent.name().to_owned();
            // Without a journal, another worker would repeat the calls of a run that was
            // interrupted.
            if !agent.is_durable() {
                return Err(DbosError::NotDurable { agent: name });
            }
            // DBOS calls the function for each run, so the function keeps its own clones.
            let run_engine = engine.clone();
            let worker = id.clone();
            let events = on_event.clone();
            let registered = dbos.register_workflow(&name, move |request: SavedRequest| {
                make(
                    run_engine.clone(),
                    worker.clone(),
                    agent.clone(),
                    events.clone(),
                    request,
                )
            });
            // The annotation gives the types of the workflow's end, which the compiler cannot
            // infer.
            let _: WorkflowRef<SavedRequest, RunEnd, Error> =
                registered.map_err(DbosError::engine)?;
            engine.open_queue(&name, concurrency).await?;
        }
        // Last: from here on DBOS takes runs from the queues, which need all agents.
        dbos.launch().await.map_err(DbosError::engine)?;
        Ok(Worker { engine, dbos, id })
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("WorkerBuilder");
        debug
            .field("id", &self.id)
            .field("agents", &self.agents)
            .finish_non_exhaustive()
    }
}
