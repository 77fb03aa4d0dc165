use tower_agent::error::{Error, ErrorKind};

/// Returns the error for something that a protocol cannot represent, such as a `part of a message`:
/// nothing is dropped silently.
#[must_use]
pub fn unsupported(what: &str) -> Error {
    Error::new(
        ErrorKind::InvalidRequest,
        format!("the protocol has no such {what}"),
    )
}
