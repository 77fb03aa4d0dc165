use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use pin_project_lite::pin_project;
use tower::Service;

use super::build_error::OpenAiBuildError;

type Inner = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;
type InnerFuture = <Inner as Service<http::Request<Full<Bytes>>>>::Future;
type InnerError = <Inner as Service<http::Request<Full<Bytes>>>>::Error;

/// The default HTTP client: hyper over rustls, with the root certificates of browsers.
///
/// It supports HTTP/1.1 and HTTP/2, reuses connections, and follows no redirects. Clones share
/// connections.
#[derive(Clone)]
pub struct HttpClient(Inner);

impl HttpClient {
    /// Creates a client without connections.
    ///
    /// # Errors
    ///
    /// Fails with [`OpenAiBuildError::Tls`] if TLS cannot be set up.
    pub fn new() -> Result<Self, OpenAiBuildError> {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        // The crypto provider is explicit, since requesting the process default may panic.
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| OpenAiBuildError::Tls(error.to_string()))?
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let client =
            Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
        Ok(Self(client))
    }
}

impl Service<http::Request<Full<Bytes>>> for HttpClient {
    type Response = <Inner as Service<http::Request<Full<Bytes>>>>::Response;
    type Error = InnerError;
    type Future = HttpFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Full<Bytes>>) -> Self::Future {
        HttpFuture { inner: self.0.call(request) }
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of an [`HttpClient`].
    pub struct HttpFuture {
        #[pin]
        inner: InnerFuture,
    }
}

impl Future for HttpFuture {
    type Output = <InnerFuture as Future>::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.project().inner.poll(cx)
    }
}

impl fmt::Debug for HttpFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFuture").finish_non_exhaustive()
    }
}
