use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::time::sleep;
use tower_agent::{Error, ErrorKind, Result};

use super::config::Config;
use super::connection::Connection;
use super::transport::{Endpoint, Refused};
use crate::lock::lock;

/// The waits before further attempts to connect again.
const BACKOFF: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(4),
];

type Connecting = Shared<BoxFuture<'static, Result<Arc<Connection>>>>;

/// The way to one server: at most one connection, made again when a call needs it.
#[derive(Debug)]
pub(super) struct Link {
    endpoint: Endpoint,
    config: Arc<Config>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Down,
    Connecting(Connecting),
    Up(Arc<Connection>),
    Closed,
}

impl Link {
    /// Connects once.
    pub(super) async fn open(endpoint: Endpoint, config: Config) -> Result<Arc<Self>> {
        let config = Arc::new(config);
        let connection = Connection::open(&endpoint, &config).await?;
        let state = Mutex::new(State::Up(Arc::new(connection)));
        Ok(Arc::new(Self {
            endpoint,
            config,
            state,
        }))
    }

    pub(super) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns the connection, after connecting again if it was closed. Concurrent calls share the
    /// attempts.
    pub(super) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection>> {
        // The lock ends with this block, before the wait.
        let connecting = {
            let mut state = self.lock();
            match &*state {
                State::Up(connection) if connection.is_open() => return Ok(connection.clone()),
                State::Closed => return Err(self.closed()),
                State::Connecting(connecting) => connecting.clone(),
                State::Down | State::Up(_) => {
                    // A server that died without an answer may do so again: then the first
                    // attempt waits as well.
                    let at_once = !matches!(&*state, State::Up(last) if !last.has_answered());
                    let connecting = self.clone().connect(at_once);
                    *state = State::Connecting(connecting.clone());
                    connecting
                }
            }
        };
        connecting.await
    }

    /// Asks the server on the connection, and once more on a new one if it has refused the session:
    /// then it has carried nothing out.
    pub(super) async fn ask<T, F, A>(self: &Arc<Self>, ask: F) -> Result<T>
    where
        F: Fn(Arc<Connection>) -> A,
        A: Future<Output = Result<T>>,
    {
        match ask(self.connection().await?).await {
            Err(error) if Refused::of(&error) == Some(Refused::Session) => {
                ask(self.connection().await?).await
            }
            answered => answered,
        }
    }

    /// Connects in a task of its own: a call that is dropped must not stop the attempts that other
    /// calls wait for.
    fn connect(self: Arc<Self>, at_once: bool) -> Connecting {
        let task = tokio::spawn(async move {
            let connected = self.attempts(at_once).await.map(Arc::new);
            let mut state = self.lock();
            // Closed meanwhile: the new connection is dropped, which closes it.
            if matches!(*state, State::Closed) {
                return Err(self.closed());
            }
            *state = match &connected {
                Ok(connection) => State::Up(connection.clone()),
                Err(_) => State::Down,
            };
            connected
        });
        let connected = task.map(|joined| {
            // The task panicked, or the runtime is shutting down.
            joined.map_err(|error| {
                Error::new(ErrorKind::Connection, "the connection attempt was aborted")
                    .with_source(tower::BoxError::from(error))
            })?
        });
        connected.boxed().shared()
    }

    async fn attempts(&self, at_once: bool) -> Result<Connection> {
        let server = &self.config.server;
        let mut waits = BACKOFF.into_iter();
        if !at_once && let Some(wait) = waits.next() {
            sleep(wait).await;
        }
        loop {
            let error = match Connection::open(&self.endpoint, &self.config).await {
                Ok(connection) => return Ok(connection),
                Err(error) => error,
            };
            // A missing program or a wrong key fails the same way every time.
            match waits.next().filter(|_| error.is_retryable()) {
                Some(wait) => {
                    tracing::warn!(%server, error = %error.to_string().escape_debug(), ?wait, "connecting again");
                    sleep(wait).await;
                }
                None => return Err(error),
            }
        }
    }

    /// Closes the connection for good.
    pub(super) async fn close(&self) {
        // First the state: no call may begin a connection that nobody closes.
        let last = std::mem::replace(&mut *self.lock(), State::Closed);
        if let State::Up(connection) = last {
            connection.close().await;
        }
    }

    fn closed(&self) -> Error {
        let message = format!(
            "the client of MCP server `{}` was closed",
            self.config.server
        );
        Error::new(ErrorKind::Connection, message).with_retryable(false)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}
