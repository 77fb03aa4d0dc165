/// An [`HttpClient`](super::HttpClient) cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HttpClientError {
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    /// Certificates or a key that were given cannot be read. They are not shown.
    #[error("the {what} cannot be read as PEM: {why}")]
    Pem {
        /// `root certificates`, `client certificate` or `key of the client certificate`.
        what: &'static str,
        /// The reason, as the end of the message.
        why: String,
    },
    /// The address of a proxy is not `http://host:port` or `https://host:port`. It is not shown,
    /// since it may contain a password.
    #[error(
        "the address of the proxy {why}: write it as `http://host:port` or `https://host:port`"
    )]
    Proxy {
        /// The reason, as the end of the message.
        why: String,
    },
}
