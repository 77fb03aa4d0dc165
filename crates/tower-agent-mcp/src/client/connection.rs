use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{Peer, Subscription};
use rmcp::{ClientLifecycleMode, RoleClient, ServiceError};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower_agent::{Error, ErrorKind, Result};

use super::calls::Calls;
use super::config::Config;
use super::error;
use super::handler::{Handler, Running};
use super::transport::Endpoint;
use crate::lock::lock;

/// The wait before a server is asked again to report changes.
const AGAIN: Duration = Duration::from_secs(1);

/// One connection to a server, until either side closes it.
pub(super) struct Connection {
    peer: Peer<RoleClient>,
    calls: Arc<Calls>,
    /// Whether the server has answered a call.
    has_answered: AtomicBool,
    service: Mutex<Option<Running>>,
    _listening: DropGuard,
}

impl Connection {
    /// Connects once.
    pub(super) async fn open(endpoint: &Endpoint, config: &Arc<Config>) -> Result<Self> {
        let mode = config.lifecycle.mode();
        let is_auto = matches!(mode, ClientLifecycleMode::Auto { .. });
        match Self::attempt(endpoint, config, mode).await {
            Err(Failed {
                may_be_legacy: true,
                ..
            }) if is_auto => {
                let mode = ClientLifecycleMode::Initialize;
                Self::attempt(endpoint, config, mode)
                    .await
                    .map_err(|failed| failed.error)
            }
            other => other.map_err(|failed| failed.error),
        }
    }

    async fn attempt(
        endpoint: &Endpoint,
        config: &Arc<Config>,
        mode: ClientLifecycleMode,
    ) -> Result<Self, Failed> {
        let handler = Handler::new(config.clone());
        let calls = handler.calls().clone();
        let connecting = endpoint.connect(handler, mode, config.max_message_size);
        let service = match timeout(config.connect_timeout, connecting).await {
            Ok(Ok(service)) => service,
            Ok(Err(failed)) => {
                let may_be_legacy = failed.may_be_legacy();
                let error = error::connecting(&config.server, failed);
                return Err(Failed {
                    error,
                    may_be_legacy,
                });
            }
            Err(_) => {
                let (server, after) = (&config.server, config.connect_timeout);
                let message =
                    format!("connecting to MCP server `{server}` took longer than {after:?}");
                return Err(Failed {
                    error: Error::new(ErrorKind::Timeout, message),
                    may_be_legacy: false,
                });
            }
        };
        let peer = service.peer().clone();
        let listening = CancellationToken::new();
        tokio::spawn(listen(peer.clone(), calls.clone(), listening.clone()));
        Ok(Self {
            peer,
            calls,
            has_answered: AtomicBool::new(false),
            service: Mutex::new(Some(service)),
            _listening: listening.drop_guard(),
        })
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    pub(super) fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }

    /// Returns whether calls can be made on it, and all that the server says arrives.
    pub(super) fn is_open(&self) -> bool {
        !self.peer.is_transport_closed() && !self.calls.has_lost_stream()
    }

    pub(super) fn note_answer(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_answered(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    /// Closes the connection, and waits until the server has been told.
    pub(super) async fn close(&self) {
        let service = lock(&self.service).take();
        if let Some(service) = service
            && let Err(error) = service.cancel().await
        {
            tracing::warn!(%error, "closing the connection failed");
        }
    }
}

/// A failed attempt to connect.
struct Failed {
    error: Error,
    /// Whether a server of an earlier version may fail like this.
    may_be_legacy: bool,
}

/// Asks a server to report changes of its tools, and again if it ends the report: since 2026-07-28
/// it does so only on request. The transport sees the reports.
async fn listen(peer: Peer<RoleClient>, calls: Arc<Calls>, stop: CancellationToken) {
    let Some(server) = peer.peer_info() else {
        return;
    };
    let tools = server.capabilities.tools.as_ref();
    let reports = tools
        .and_then(|tools| tools.list_changed)
        .unwrap_or_default();
    if server.protocol_version < ProtocolVersion::V_2026_07_28 || !reports {
        return;
    }
    let listening = async {
        let mut reports = subscribe(&peer).await?;
        loop {
            while let Ok(Some(_)) = reports.next().await {}
            tracing::debug!("the server reports no more changes of its tools; asking again");
            sleep(AGAIN).await;
            reports = subscribe(&peer).await?;
            // There may have been one in between.
            calls.tools_changed();
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        Err::<Infallible, ServiceError>(error) = listening => {
            tracing::warn!(%error, "the server does not report changes of its tools");
            // It may only have been out of reach.
            if !matches!(error, ServiceError::McpError(_)) {
                calls.stream_lost();
            }
        }
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
