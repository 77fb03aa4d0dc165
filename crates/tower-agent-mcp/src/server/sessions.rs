//! A limited number of sessions.

use futures_util::{Stream, StreamExt};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError, LocalSessionWorker,
};
use rmcp::transport::streamable_http_server::session::{
    ServerSseMessage, SessionId, SessionManager,
};
use rmcp::transport::worker::WorkerTransport;

use super::http_settings::HttpSettings;

/// The sessions of clients that begin with `initialize`: anybody can begin one, and each takes
/// memory.
pub(super) struct Sessions {
    sessions: LocalSessionManager,
    max: usize,
    /// Held while a session is created, so that the number cannot be exceeded in between.
    creating: tokio::sync::Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionsError {
    #[error("there are too many sessions")]
    Full,
    #[error(transparent)]
    Session(#[from] LocalSessionManagerError),
}

impl Sessions {
    pub(super) fn new(settings: &HttpSettings) -> Self {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(settings.session_timeout);
        // It invites the client to come back for an answer, and a call ends with its connection.
        sessions.session_config.sse_retry = None;
        Self {
            sessions,
            max: settings.max_sessions,
            creating: tokio::sync::Mutex::default(),
        }
    }

    pub(super) async fn are_full(&self) -> bool {
        self.sessions.sessions.read().await.len() >= self.max
    }
}

impl SessionManager for Sessions {
    type Error = SessionsError;
    type Transport = WorkerTransport<LocalSessionWorker>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionsError> {
        let _creating = self.creating.lock().await;
        if self.are_full().await {
            return Err(SessionsError::Full);
        }
        Ok(self.sessions.create_session().await?)
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionsError> {
        Ok(self.sessions.initialize_session(id, message).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionsError> {
        Ok(self.sessions.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionsError> {
        Ok(self.sessions.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        let events = self.sessions.create_stream(id, message).await?;
        // From an id the stream could be resumed: see above.
        Ok(events.map(|mut event| {
            event.event_id = None;
            event
        }))
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionsError> {
        Ok(self.sessions.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.sessions.create_standalone_stream(id).await?)
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionsError> {
        Ok(self.sessions.resume(id, last_event_id).await?)
    }
}
