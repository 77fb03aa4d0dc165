use std::io;

use rmcp::service::ClientInitializeError;

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Open(io::Error),
    #[error(transparent)]
    Handshake(#[from] Box<ClientInitializeError>),
}

impl From<ClientInitializeError> for ConnectError {
    fn from(error: ClientInitializeError) -> Self {
        Self::Handshake(Box::new(error))
    }
}

impl ConnectError {
    /// Returns whether a server of an earlier version may fail `server/discover` like this: it may
    /// close the connection at a request that it does not know.
    pub(super) fn may_be_legacy(&self) -> bool {
        let Self::Handshake(error) = self else {
            return false;
        };
        matches!(
            **error,
            ClientInitializeError::ConnectionClosed(_)
                | ClientInitializeError::NoCompatibleProtocolVersion { .. }
        )
    }
}
