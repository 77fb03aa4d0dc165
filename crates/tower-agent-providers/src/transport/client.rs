use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use pin_project_lite::pin_project;
use tower::Service;
use tower_agent::error::BoxError;

use super::body::RequestBody;

type Inner = Client<HttpsConnector<HttpConnector>, RequestBody>;
type InnerFuture = <Inner as Service<http::Request<RequestBody>>>::Future;

/// The TLS setup of an [`HttpClient`] failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot set up TLS: {0}")]
pub struct TlsError(String);

/// The default HTTP client: hyper over rustls, with the root certificates of browsers.
///
/// It supports HTTP/1.1 and HTTP/2, reuses connections, and follows no redirects. Clones share
/// connections.
#[derive(Clone)]
pub struct HttpClient(Arc<Inner>);

/// See [`HttpClient::shared`].
static SHARED: OnceLock<HttpClient> = OnceLock::new();

impl HttpClient {
    /// Returns the client that all models share that are built without one of their own: two models
    /// at one address use the same connections.
    ///
    /// Its connections live on the runtimes that opened them. A program that starts one runtime
    /// after another, such as a set of tests, can give each model a [`new`](Self::new) client.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn shared() -> Result<Self, TlsError> {
        if let Some(client) = SHARED.get() {
            return Ok(client.clone());
        }
        let client = Self::new()?;
        // If another thread was first, its client is the shared one and ours is dropped unused.
        Ok(SHARED.get_or_init(|| client).clone())
    }

    /// Creates a client without connections.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn new() -> Result<Self, TlsError> {
        let mut tcp = HttpConnector::new();
        // A request is written at once, and need not wait for more bytes to fill a packet.
        tcp.set_nodelay(true);
        // Otherwise the connector rejects `https`, which the one around it handles.
        tcp.enforce_http(false);
        // The crypto provider is explicit, since requesting the process default may panic.
        let connector = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| TlsError(error.to_string()))?
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self(Arc::new(client)))
    }
}

impl Service<http::Request<RequestBody>> for HttpClient {
    type Response = http::Response<ResponseBody>;
    type Error = BoxError;
    type Future = HttpFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        (&*self.0).poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> Self::Future {
        HttpFuture {
            inner: (&*self.0).call(request),
        }
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
    type Output = Result<http::Response<ResponseBody>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.project().inner.poll(cx))?;
        Poll::Ready(Ok(response.map(ResponseBody)))
    }
}

impl fmt::Debug for HttpFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFuture").finish_non_exhaustive()
    }
}

/// The body of a response to an [`HttpClient`].
#[derive(Debug)]
pub struct ResponseBody(Incoming);

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0).poll_frame(cx).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
