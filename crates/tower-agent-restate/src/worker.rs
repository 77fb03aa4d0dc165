use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use restate_sdk::endpoint::{Builder, Endpoint};
use restate_sdk::hyper::HyperEndpoint;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;
use tower_agent::Error;
use tower_agent::agent::AgentService;

use crate::engine::Engine;
use crate::error::RestateError;
use crate::journal_object::JournalObject;
use crate::run_object::{Agents, RunObject};
use crate::user_object::UserObject;

/// The number of runs that a worker makes at once, by default.
const CONCURRENCY: usize = 100;
/// Before a connection is accepted after one that failed, for want of file handles as a rule.
const PAUSE: Duration = Duration::from_millis(100);

/// A process that makes runs and serves their journal. Created by [`Worker::builder`].
///
/// It stops when it is dropped.
#[must_use = "it stops when it is dropped"]
pub struct Worker(JoinHandle<()>);

/// Configures a [`Worker`].
#[must_use = "a worker works once it is started"]
pub struct WorkerBuilder {
    engine: Engine,
    agents: Agents,
    concurrency: usize,
    endpoint: Builder,
}

impl Worker {
    /// Configures a worker.
    pub fn builder(engine: &Engine) -> WorkerBuilder {
        WorkerBuilder {
            engine: engine.clone(),
            agents: Agents::new(),
            concurrency: CONCURRENCY,
            endpoint: Endpoint::builder(),
        }
    }

    /// Stops: its runs are dropped, and continue in other workers.
    pub async fn stop(mut self) {
        self.0.abort();
        // It was aborted.
        let _ = (&mut self.0).await;
    }
}

impl WorkerBuilder {
    /// Adds an agent, whose runs are started by this name. It may have services around it, such as
    /// a
    /// [`SessionService`](https://docs.rs/tower-agent-conversations/latest/tower_agent_conversations/struct.SessionService.html).
    ///
    /// Its [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) start with a
    /// [`Durable`](tower_agent_durable::journal::Durable) that has the worker's engine.
    pub fn agent(mut self, name: impl Into<Arc<str>>, agent: impl AgentService) -> Self {
        let agent = agent.map_err(|error| Error::from(error.into()));
        self.agents
            .insert(name.into(), BoxCloneSyncService::new(agent));
        self
    }

    /// Sets how many runs the worker executes at once; the server keeps the others and offers them
    /// again. Defaults to 100.
    ///
    /// The sum over all workers must be lower than the number of concurrent invocations of the
    /// server, 1000 by default: a run occupies one, and so does each of its steps while it is
    /// stored. If none is left, the server stands still.
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = runs;
        self
    }

    /// Serves only requests that the server has signed, with the key of this public key, such as
    /// `publickeyv1_w7YHemBctH5Ck2nQRQ47iBBqhNHy4FV7t2Usbye2A6f`. Others are answered with 401, and
    /// run nothing. With several keys, that of any may have signed a request, for a server that
    /// gets another one. Defaults to none: everybody who can reach the worker can make it execute
    /// runs.
    ///
    /// The server signs with the private key, in a file that
    /// `RESTATE_REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE` names, and logs the public key when it
    /// starts.
    ///
    /// # Errors
    ///
    /// Fails with [`IdentityKey`](RestateError::IdentityKey) if it is no public key of this form.
    pub fn identity_key(mut self, key: &str) -> Result<Self, RestateError> {
        let known = self.endpoint.identity_key(key);
        self.endpoint = known.map_err(|error| RestateError::IdentityKey {
            why: error.to_string(),
        })?;
        Ok(self)
    }

    /// Starts the worker, which serves the requests of the server over HTTP/2.
    ///
    /// Register the address of the workers once with the server, as in
    /// `restate deployments register http://workers:9080`. Give it the server's
    /// [key](Self::identity_key), or let nobody else reach it.
    pub fn start(self, listener: TcpListener) -> Worker {
        let Self {
            engine,
            agents,
            concurrency,
            endpoint,
        } = self;
        let free = Semaphore::new(concurrency.min(Semaphore::MAX_PERMITS));
        let runs = RunObject {
            engine,
            agents,
            free,
        };
        let endpoint = endpoint.bind(JournalObject).bind(UserObject).bind(runs);
        Worker(tokio::spawn(accept(
            listener,
            HyperEndpoint::new(endpoint.build()),
        )))
    }
}

async fn accept(listener: TcpListener, endpoint: HyperEndpoint) {
    // In a set, which ends them with the worker.
    let mut connections = JoinSet::new();
    loop {
        // Connections that have ended would be kept in the set.
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it, each small message waits for the answer to the one before.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection is slow");
                }
                let http = http2::Builder::new(TokioExecutor::new());
                connections.spawn(http.serve_connection(TokioIo::new(stream), endpoint.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a worker cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("agents", &self.agents.keys())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}
