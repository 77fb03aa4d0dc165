use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

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
use super::client_error::HttpClientError;
#[cfg(feature = "proxy")]
use super::proxy::{Proxies, ProxyChoice, ProxyConnector};
use super::time_limits::{Silence, TimeLimits};
use super::tls::{Certificates, ClientCertificate};

#[cfg(not(feature = "proxy"))]
type Connector = HttpConnector;
#[cfg(feature = "proxy")]
type Connector = ProxyConnector;

type Inner = Client<HttpsConnector<Connector>, RequestBody>;
type InnerFuture = <Inner as Service<http::Request<RequestBody>>>::Future;

/// The default HTTP client: hyper over rustls, with the root certificates of browsers.
///
/// It supports HTTP/1.1 and HTTP/2, reuses connections, and follows no redirects. Clones share
/// connections. A call of a server that has gone silent ends after the [`TimeLimits`].
///
/// [`builder`](Self::builder) sets certificates and limits, and with the feature `proxy` a proxy;
/// with that feature, the client uses the proxies of the environment. What this client does not do,
/// such as compression, is a layer around it: `tower_http`'s `DecompressionLayer`.
#[derive(Clone)]
pub struct HttpClient {
    inner: Arc<Inner>,
    limits: TimeLimits,
    #[cfg(feature = "proxy")]
    proxies: Proxies,
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

/// Builds an [`HttpClient`]; created by [`HttpClient::builder`].
///
/// ```no_run
/// use tower_agent_providers::HttpClient;
///
/// # fn main() -> Result<(), tower_agent::BoxError> {
/// // A server inside a company, with the company's certificates.
/// let client = HttpClient::builder()
///     .root_certificates(std::fs::read("/etc/company/roots.pem")?)
///     .client_certificate(std::fs::read("client.pem")?, std::fs::read("client.key")?)
///     .build()?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use]
pub struct HttpClientBuilder {
    limits: TimeLimits,
    certificates: Certificates,
    #[cfg(feature = "proxy")]
    proxy: ProxyChoice,
}

/// The time of silence after which TCP asks whether the server is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);

impl HttpClientBuilder {
    /// Sets how long the client waits for a server that says nothing. See [`TimeLimits`] for the
    /// defaults.
    pub fn time_limits(mut self, limits: TimeLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Trusts these root certificates as well as those of browsers. One or more, as PEM.
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.roots.push(pem.into());
        self
    }

    /// Shows this certificate to servers that ask for one: the chain, the client's own certificate
    /// first, and its private key, both as PEM. A proxy is not shown it.
    pub fn client_certificate(
        mut self,
        chain_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client = Some(ClientCertificate {
            chain: chain_pem.into(),
            key: key_pem.into(),
        });
        self
    }

    /// Reaches all servers through this proxy, `http://host:port` or `https://host:port`, which may
    /// contain `user:password@`.
    ///
    /// Defaults to the proxies that the environment names, as for curl: `HTTPS_PROXY`, `HTTP_PROXY`
    /// and `ALL_PROXY`, except for the hosts in `NO_PROXY` and for this machine's own servers.
    #[cfg(feature = "proxy")]
    pub fn proxy(mut self, url: impl Into<String>) -> Self {
        self.proxy = ProxyChoice::Url(url.into());
        self
    }

    /// Uses no proxy, also if the environment names one.
    #[cfg(feature = "proxy")]
    pub fn no_proxy(mut self) -> Self {
        self.proxy = ProxyChoice::None;
        self
    }

    /// Builds the client, without connections.
    ///
    /// # Errors
    ///
    /// Fails with an [`HttpClientError`] that names the invalid part.
    pub fn build(self) -> Result<HttpClient, HttpClientError> {
        let tcp = self.tcp();
        #[cfg(feature = "proxy")]
        let proxies = self.proxy.proxies()?;
        #[cfg(feature = "proxy")]
        let tcp = ProxyConnector::new(tcp, self.certificates.anonymous_config()?, proxies.clone());
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(self.certificates.config()?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(HttpClient {
            inner: Arc::new(client),
            limits: self.limits,
            #[cfg(feature = "proxy")]
            proxies,
        })
    }

    fn tcp(&self) -> HttpConnector {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(self.limits.connect);
        // A request is written at once, and need not wait for more bytes to fill a packet.
        tcp.set_nodelay(true);
        // A router forgets a silent connection within minutes, and a model may think for that long.
        tcp.set_keepalive(Some(KEEP_ALIVE));
        // Otherwise the connector rejects `https`, which the one around it handles.
        tcp.enforce_http(false);
        tcp
    }
}

impl fmt::Debug for HttpClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClientBuilder")
            .field("limits", &self.limits)
            .field(
                "has_client_certificate",
                &self.certificates.client.is_some(),
            )
            .finish_non_exhaustive()
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
            silence: Silence::new(self.limits.head, "the server sent no response")
                .with_deadline(self.limits.whole),
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
        silence: Silence,
        idle: Option<Duration>,
    }
}

impl Future for HttpFuture {
    type Output = Result<http::Response<ResponseBody>, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let Poll::Ready(response) = this.inner.poll(cx) else {
            return this.silence.poll(cx).map(Err);
        };
        let of_body = "the server stopped in the middle of its response";
        let silence = this.silence.next(*this.idle, of_body);
        Poll::Ready(Ok(response?.map(|body| ResponseBody { body, silence })))
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
    silence: Silence,
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
            Poll::Pending => this.silence.poll(cx).map(|error| Some(Err(error))),
            Poll::Ready(frame) => {
                this.silence.end();
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
