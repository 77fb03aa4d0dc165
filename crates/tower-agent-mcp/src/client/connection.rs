// Log messages are deprecated; servers still send them.
#![allow(deprecated)]

use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{ProtocolVersion, SetLevelRequestParams, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use rmcp::{ClientLifecycleMode, RoleClient, ServiceError};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower_agent::{Error, ErrorKind, Result};

use super::backoff::Backoff;
use super::calls::Calls;
use super::config::Config;
use super::error;
use super::handler::{McpClientHandler, Running};
use super::transport::Endpoint;
use crate::lock::lock;
use crate::trace::Operation;

/// The least wait before a new subscription to changes of the tools.
const RESUBSCRIBE_AFTER: Duration = Duration::from_secs(1);

/// One connection to a server, until either side closes it.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    calls: Arc<Calls>,
    /// The protocol version.
    version: Option<String>,
    /// Set once the server has answered a request.
    has_answered: AtomicBool,
    service: Mutex<Option<Running>>,
    /// Ends the subscription to changes of the tools with the connection.
    _subscription: DropGuard,
}

impl Connection {
    /// Connects once.
    pub(super) async fn open(endpoint: &Endpoint, config: &Arc<Config>) -> Result<Self> {
        let mode = config.lifecycle.mode();
        let is_auto = matches!(mode, ClientLifecycleMode::Auto { .. });
        let first_timeout = if is_auto {
            config.discover_timeout.min(config.connect_timeout)
        } else {
            config.connect_timeout
        };
        let logins = config.logins.begun();
        let mut attempted = Self::attempt(endpoint, config, mode.clone(), first_timeout).await;
        // rmcp has a limit of its own for `server/discover`, which a person who logs in may exceed.
        if attempted.is_err() && config.logins.begun() > logins {
            attempted = Self::attempt(endpoint, config, mode, first_timeout).await;
        }
        // rmcp falls back within a connection. A server that closed it needs a new one, and would
        // close that as well if `server/discover` came first again. So does one that is silent.
        if is_auto
            && let Err(failed) = &attempted
            && failed.may_be_legacy
        {
            let mode = ClientLifecycleMode::Initialize;
            attempted = Self::attempt(endpoint, config, mode, config.connect_timeout).await;
        }
        attempted.map_err(|failed| failed.error)
    }

    async fn attempt(
        endpoint: &Endpoint,
        config: &Arc<Config>,
        mode: ClientLifecycleMode,
        limit: Duration,
    ) -> Result<Self, FailedAttempt> {
        let handler = McpClientHandler::new(config.clone());
        let calls = handler.calls().clone();
        let connecting = endpoint.connect(handler, mode, config.max_message_size);
        let service = match config.logins.timeout(limit, connecting).await {
            Ok(Ok(service)) => service,
            Ok(Err(failed)) => {
                let may_be_legacy = failed.may_be_legacy();
                let error = error::connecting(&config.server, failed);
                return Err(FailedAttempt {
                    error,
                    may_be_legacy,
                });
            }
            Err(_) => {
                let message = format!(
                    "connecting to MCP server `{}` took longer than {limit:?}",
                    config.server,
                );
                return Err(FailedAttempt {
                    error: Error::new(ErrorKind::Timeout, message),
                    may_be_legacy: true,
                });
            }
        };
        let peer = service.peer().clone();
        let server = peer.peer_info();
        let version = server.map(|server| server.protocol_version.to_string());
        set_log_level(&peer, config).await;
        let stop = CancellationToken::new();
        tokio::spawn(watch_tools(peer.clone(), calls.clone(), stop.clone()));
        Ok(Self {
            peer,
            calls,
            version,
            has_answered: AtomicBool::new(false),
            service: Mutex::new(Some(service)),
            _subscription: stop.drop_guard(),
        })
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    /// Returns the operation of a request on this connection, for its span.
    pub(super) fn operation(&self, method: &'static str) -> Operation<'_> {
        Operation {
            method,
            version: self.version.as_deref(),
            ..Operation::default()
        }
    }

    pub(super) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Returns `true` if calls can be made on it, and every message of the server arrives.
    pub(super) fn is_open(&self) -> bool {
        // A connection without its stream still answers calls, but loses questions and changes of
        // the tools without a sign. A new one is cheaper than that. In a session that the server
        // has refused nothing is answered.
        !self.peer.is_transport_closed() && !self.calls.is_lost()
    }

    /// Records that the server has answered a request.
    pub(super) fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Closes the connection, and waits for the end of the transport.
    pub(super) async fn close(&self) {
        let service = lock(&self.service).take();
        if let Some(service) = service
            && let Err(error) = service.cancel().await
        {
            tracing::warn!(error = %error.to_string().escape_debug(), "closing the connection failed");
        }
    }
}

/// Asks a server that has log messages for those of the level that the caller has set.
async fn set_log_level(peer: &Peer<RoleClient>, config: &Config) {
    let (Some(level), Some(server)) = (config.log_level, peer.peer_info()) else {
        return;
    };
    // Later versions are asked with each request.
    let is_asked_once = server.protocol_version < ProtocolVersion::V_2026_07_28;
    if !is_asked_once || server.capabilities.logging.is_none() {
        return;
    }
    let level = SetLevelRequestParams::new(level.to_protocol());
    let set = timeout(config.call_timeout, peer.set_level(level)).await;
    // The tools work without a log.
    if !matches!(set, Ok(Ok(_))) {
        let server = &config.server;
        tracing::warn!(%server, "the server did not set the level of its log");
    }
}

/// A failed attempt to connect.
struct FailedAttempt {
    error: Error,
    /// Set if a server of an earlier version may fail like this.
    may_be_legacy: bool,
}

/// Subscribes to changes of the tools, and again after the server ends the subscription. Servers
/// since 2026-07-28 report changes only to subscribers; the transport reads the reports.
async fn watch_tools(peer: Peer<RoleClient>, calls: Arc<Calls>, stop: CancellationToken) {
    let Some(server) = peer.peer_info() else {
        return;
    };
    let tools = server.capabilities.tools.as_ref();
    let has_reports = tools
        .and_then(|tools| tools.list_changed)
        .unwrap_or_default();
    if server.protocol_version < ProtocolVersion::V_2026_07_28 || !has_reports {
        return;
    }
    tokio::select! {
        () = stop.cancelled() => {}
        Err::<Infallible, ServiceError>(error) = read_reports(&peer, &calls) => {
            tracing::warn!(error = %error.to_string().escape_debug(), "the server does not report changes of its tools");
            // A rejected subscription would be rejected again. Any other failure may only mean that
            // the server was out of reach: the next call connects again, and then subscribes.
            if !matches!(error, ServiceError::McpError(_)) {
                calls.set_lost();
            }
        }
    }
}

/// Reads reports of changed tools until the server cannot be subscribed to.
async fn read_reports(peer: &Peer<RoleClient>, calls: &Calls) -> Result<Infallible, ServiceError> {
    let mut backoff = Backoff::default();
    backoff.next();
    let mut reports = subscribe(peer).await?;
    loop {
        while let Ok(Some(_)) = reports.next().await {
            backoff.reset();
        }
        tracing::debug!("the server reports no more changes of its tools; asking again");
        sleep(RESUBSCRIBE_AFTER + backoff.next()).await;
        reports = subscribe(peer).await?;
        // The tools may have changed while there was no subscription.
        calls.set_tools_changed();
    }
}

async fn subscribe(peer: &Peer<RoleClient>) -> Result<Subscription, ServiceError> {
    peer.listen(SubscriptionFilter::builder().tools_list_changed().build())
        .await
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("is_open", &self.is_open())
            .finish_non_exhaustive()
    }
}
