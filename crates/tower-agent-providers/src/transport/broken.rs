use crate::protocol::Fault;
use tower_agent::error::Error;

/// The reason why the next event cannot be read.
pub(super) enum Broken {
    /// The body failed.
    Body(Error),
    /// The body is not in the format of the framing.
    Format(Fault),
}

impl From<sse_stream::Error> for Broken {
    fn from(error: sse_stream::Error) -> Self {
        match error {
            sse_stream::Error::Body(error) => Self::Body(Error::from(error)),
            error => Self::Format(Fault::protocol(format!("cannot read the stream: {error}"))),
        }
    }
}
