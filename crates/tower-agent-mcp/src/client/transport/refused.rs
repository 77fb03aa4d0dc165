use tower_agent::Error;

/// The refusal of a server that has carried nothing out: the source of the error of a request that
/// can be sent again, whatever it would have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::client) enum Refused {
    #[error("the server refused the request before it carried it out")]
    Request,
    /// Another session can be begun.
    #[error("the server refused the session")]
    Session,
}

impl Refused {
    /// Returns what was refused, if an error is about a refusal.
    pub(in crate::client) fn of(error: &Error) -> Option<Self> {
        let source = std::error::Error::source(error)?;
        source.downcast_ref().copied()
    }
}
