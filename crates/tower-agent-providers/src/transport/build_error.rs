use tower_agent::error::{Error, ErrorKind};

/// An [`HttpModel`](super::HttpModel) could not be built. The error never contains a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelBuildError {
    /// The base URL is not a valid HTTP URL.
    #[error("invalid base URL `{url}`: {reason}")]
    BaseUrl {
        /// The URL, without parts that may contain a key: credentials, query, an invalid port.
        url: String,
        /// The problem.
        reason: String,
    },
    /// The provider's address or a signature needs an option that is missing or wrong.
    #[error("cannot call the provider: {0}")]
    Option(String),
    /// The API key contains characters that are not allowed in a header.
    #[error("the API key contains characters that are not allowed in an HTTP header")]
    ApiKey,
    /// The name of a header is invalid.
    #[error("the name of header {number} contains characters that are not allowed in HTTP")]
    HeaderName {
        /// The position of the header in the builder, from 1. The name is not shown, since it may
        /// be a misplaced key.
        number: usize,
    },
    /// The value of a header contains characters that are not allowed in a header.
    #[error(
        "the value of header `{name}` contains characters that are not allowed in an HTTP header"
    )]
    HeaderValue {
        /// The header.
        name: String,
    },
    /// The default client cannot be built.
    #[cfg(feature = "http-client")]
    #[error(transparent)]
    Client(#[from] super::client_error::HttpClientError),
}

impl From<ModelBuildError> for Error {
    fn from(error: ModelBuildError) -> Self {
        Self::from_source(ErrorKind::InvalidRequest, error)
    }
}
