use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower::Service;
use tower_agent::error::{BoxError, Error, ErrorKind};

use super::body::RequestBody;
use super::client_builder::HttpClientBuilder;
use super::client_error::HttpClientError;
#[cfg(not(feature = "proxy"))]
pub(super) use hyper_util::client::legacy::connect::HttpConnector as Connector;

#[cfg(feature = "proxy")]
pub(super) use super::proxy::ProxyConnector as Connector;

pub(super) type Inner = Client<HttpsConnector<Connector>, RequestBody>;
type InnerFuture = <Inner as Service<http::Request<RequestBody>>>::Future;

/// The default HTTP client: hyper over rustls, with the root certificates of browsers.
///
/// It supports HTTP/1.1 and HTTP/2, reuses connections, and follows no redirects. Clones share
/// connections. A call of a server that has gone silent ends after the [`TimeLimits`].
///
/// [`builder`](Self::builder) sets certificates and limits, and with the feature `proxy` a proxy; with
/// that feature, the client uses the proxies of the environment. What this client does not do, such as
/// compression, is a layer around it: `tower_http`'s `DecompressionLayer`.
#[derive(Clone)]
pub struct HttpClient {
    inner: Arc<Inner>,
    limits: TimeLimits,
    #[cfg(feature = "proxy")]
    proxies: super::proxy::Proxies,
}

/// How long an [`HttpClient`] waits for a server that says nothing. A response that goes on, however
/// slowly, is not cut. After a limit, the error is [`ErrorKind::Timeout`].
///
/// ```
/// use std::time::Duration;
///
/// use tower_agent_providers::{HttpClient, TimeLimits};
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// let mut limits = TimeLimits::default();
/// limits.head = Some(Duration::from_secs(30));
/// let client = HttpClient::builder().time_limits(limits).build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeLimits {
    /// Until a connection is there, without TLS. Defaults to 10 seconds.
    pub connect: Option<Duration>,
    /// From the call until the head of the response, which for a response that is not streamed is as
    /// long as the model takes. Defaults to 10 minutes.
    pub head: Option<Duration>,
    /// Between two pieces of the response's body. Defaults to 5 minutes.
    pub idle: Option<Duration>,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self {
            connect: Some(Duration::from_secs(10)),
            head: Some(Duration::from_secs(10 * 60)),
            idle: Some(Duration::from_secs(5 * 60)),
        }
    }
}

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
    pub fn shared() -> Result<Self, HttpClientError> {
        if let Some(client) = SHARED.get() {
            return Ok(client.clone());
        }
        let client = Self::new()?;
        #[cfg(not(feature = "proxy"))]
        warn_of_proxies();
        // If another thread was first, its client is the shared one and ours is dropped unused.
        Ok(SHARED.get_or_init(|| client).clone())
    }

    /// Creates a client without connections, with the default [`TimeLimits`].
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn new() -> Result<Self, HttpClientError> {
        Self::builder().build()
    }

    /// Creates a builder of a client.
    pub fn builder() -> HttpClientBuilder {
        HttpClientBuilder::default()
    }

    pub(super) fn from_parts(
        inner: Inner,
        limits: TimeLimits,
        #[cfg(feature = "proxy")] proxies: super::proxy::Proxies,
    ) -> Self {
        Self {
            inner: Arc::new(inner),
            limits,
            #[cfg(feature = "proxy")]
            proxies,
        }
    }
}

/// Logs that the environment names a proxy that this build does not use.
#[cfg(not(feature = "proxy"))]
fn warn_of_proxies() {
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        if std::env::var_os(name).is_some_and(|value| !value.is_empty()) {
            tracing::warn!(
                "the HTTP client does not use the proxy of `{name}`: enable the feature `proxy` of \
                 tower-agent-providers"
            );
        }
    }
}

impl Service<http::Request<RequestBody>> for HttpClient {
    type Response = http::Response<ResponseBody>;
    type Error = BoxError;
    type Future = HttpFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        (&*self.inner).poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<RequestBody>) -> Self::Future {
        #[cfg(feature = "proxy")]
        let request = self.proxies.authorize(request);
        HttpFuture {
            inner: (&*self.inner).call(request),
            head: Silence::new(self.limits.head, "the server sent no response"),
            idle: self.limits.idle,
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
        head: Silence,
        idle: Option<Duration>,
    }
}

impl Future for HttpFuture {
    type Output = Result<http::Response<ResponseBody>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Poll::Ready(response) = this.inner.poll(cx) else {
            return this.head.poll(cx).map(Err);
        };
        let idle = *this.idle;
        Poll::Ready(Ok(response?.map(|body| ResponseBody {
            body,
            idle: Silence::new(idle, "the server stopped in the middle of its response"),
        })))
    }
}

impl fmt::Debug for HttpFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpFuture").finish_non_exhaustive()
    }
}

/// The body of a response to an [`HttpClient`].
#[derive(Debug)]
pub struct ResponseBody {
    body: Incoming,
    idle: Silence,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.body).poll_frame(cx) {
            Poll::Pending => this.idle.poll(cx).map(|error| Some(Err(error))),
            Poll::Ready(frame) => {
                this.idle.end();
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The time that a server may be silent.
struct Silence {
    limit: Option<Duration>,
    what: &'static str,
    /// Made at the first silence, and set again at each.
    until: Option<Pin<Box<Sleep>>>,
    is_silent: bool,
}

impl Silence {
    fn new(limit: Option<Duration>, what: &'static str) -> Self {
        Self {
            limit,
            what,
            until: None,
            is_silent: false,
        }
    }

    /// Waits for the limit from the first poll of a silence on, and returns the error of a server that
    /// says nothing.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<BoxError> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        let until = self.until.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !std::mem::replace(&mut self.is_silent, true) {
            // Not `reset`, which panics for limits beyond the clock's range.
            until.set(sleep(limit));
        }
        ready!(until.as_mut().poll(cx));
        let message = format!("{} within {limit:?}", self.what);
        Poll::Ready(Error::new(ErrorKind::Timeout, message).into())
    }

    /// Ends a silence. The next one begins with the next poll.
    fn end(&mut self) {
        self.is_silent = false;
    }
}

impl fmt::Debug for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Silence")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
