use std::fmt;

use tower_agent::Error;

/// A failed HTTP call, in a type that rmcp takes.
#[derive(Debug)]
pub(in crate::client) struct HttpFault(pub(in crate::client) Error);

impl fmt::Display for HttpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for HttpFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}
