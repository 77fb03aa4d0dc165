//! Errors of the services inside.

use tower_agent::error::{BoxError, Error};

/// Returns the error of a service as one of `tower-agent`'s.
pub(crate) fn ours(error: impl Into<BoxError>) -> Error {
    Error::from(error.into())
}
