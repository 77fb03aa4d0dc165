/// The server that speaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedBy {
    Anthropic,
    #[cfg(feature = "bedrock")]
    Bedrock,
    Vertex,
}

impl ServedBy {
    /// Returns whether the body says that a stream is requested, and not the path alone.
    pub(super) fn reads_stream(self) -> bool {
        match self {
            Self::Anthropic | Self::Vertex => true,
            #[cfg(feature = "bedrock")]
            Self::Bedrock => false,
        }
    }
}
