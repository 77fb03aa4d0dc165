use std::io;

use rmcp::service::ClientInitializeError;

/// A failed attempt to connect.
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
    /// Returns `true` if a server of an earlier version may fail `server/discover` like this: some
    /// close the connection at an unknown request.
    pub(super) fn may_be_legacy(&self) -> bool {
        // A process that does not start, or a socket that does not open, says nothing of a version.
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
