use rmcp::ClientLifecycleMode;
use rmcp::model::ProtocolVersion;

/// The way in which client and server agree on a protocol version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lifecycle {
    /// `server/discover`, and `initialize` for a server that does not know it.
    #[default]
    Auto,
    /// `initialize`, for servers up to protocol version 2025-11-25.
    Initialize,
    /// `server/discover`, for servers since protocol version 2026-07-28.
    Discover,
}

impl Lifecycle {
    pub(super) fn mode(self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self {
            Self::Auto => ClientLifecycleMode::Auto {
                preferred_versions,
                legacy_version: None,
            },
            Self::Initialize => ClientLifecycleMode::Initialize,
            Self::Discover => ClientLifecycleMode::Discover { preferred_versions },
        }
    }
}
