//! Connections through a proxy.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use http::header::PROXY_AUTHORIZATION;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use pin_project_lite::pin_project;
use tokio::net::TcpStream;
use tower::{Service, ServiceExt};
use tower_agent::error::BoxError;

use super::client_error::HttpClientError;

/// The place where a client finds its proxies.
#[derive(Clone, Default)]
pub(super) enum ProxyChoice {
    #[default]
    Environment,
    Url(String),
    None,
}

impl ProxyChoice {
    pub(super) fn proxies(&self) -> Result<Proxies, HttpClientError> {
        let matcher = match self {
            Self::Environment => Matcher::from_env(),
            Self::Url(url) => {
                check(url)?;
                Matcher::builder().all(url.as_str()).build()
            }
            Self::None => Matcher::builder().build(),
        };
        Ok(Proxies {
            matcher: Arc::new(matcher),
            leaves_out_loopback: matches!(self, Self::Environment),
        })
    }
}

/// Fails for an address that the matcher would leave out without a word.
fn check(url: &str) -> Result<(), HttpClientError> {
    let wrong = |why: &str| {
        Err(HttpClientError::Proxy {
            why: why.to_owned(),
        })
    };
    let Ok(url) = url.parse::<Uri>() else {
        return wrong("is no URL");
    };
    if url.host().unwrap_or_default().is_empty() {
        return wrong("has no host");
    }
    match url.scheme_str() {
        Some("http" | "https") => Ok(()),
        _ => wrong("has another scheme"),
    }
}

/// The proxies of a client.
#[derive(Clone)]
pub(super) struct Proxies {
    matcher: Arc<Matcher>,
    leaves_out_loopback: bool,
}

impl Proxies {
    /// Returns the proxy of a server, if it has one.
    fn of(&self, server: &Uri) -> Option<Intercept> {
        if self.leaves_out_loopback && server.host().is_some_and(is_loopback) {
            return None;
        }
        self.matcher.intercept(server)
    }

    /// Adds the header that the proxy of an `http` server asks for. That of an `https` server is
    /// sent with the request for the tunnel.
    pub(super) fn authorize<B>(&self, mut request: http::Request<B>) -> http::Request<B> {
        if request.uri().scheme_str() == Some("http")
            && let Some(proxy) = self.of(request.uri())
            && let Some(authorization) = proxy.basic_auth()
        {
            let headers = request.headers_mut();
            headers.insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        request
    }
}

/// Returns whether a host is this machine, which no proxy of the environment is for.
fn is_loopback(host: &str) -> bool {
    if host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    // An IPv6 address stands in brackets.
    let address = host.trim_start_matches('[').trim_end_matches(']');
    address
        .parse::<IpAddr>()
        .is_ok_and(|address| address.is_loopback())
}

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Connects to servers, directly or through a proxy.
#[derive(Clone)]
pub(super) struct ProxyConnector {
    direct: HttpConnector,
    to_proxy: HttpsConnector<HttpConnector>,
    proxies: Proxies,
}

impl ProxyConnector {
    pub(super) fn new(tcp: HttpConnector, tls: rustls::ClientConfig, proxies: Proxies) -> Self {
        let to_proxy = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp.clone());
        Self {
            direct: tcp,
            to_proxy,
            proxies,
        }
    }
}

impl Service<Uri> for ProxyConnector {
    type Response = ProxyStream;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<ProxyStream, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each call drives a connector of its own to readiness.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move {
            match connector.proxies.of(&server) {
                None => connector.connect(server).await,
                Some(proxy) => connector.connect_through(proxy, server).await,
            }
        })
    }
}

impl ProxyConnector {
    async fn connect(self, server: Uri) -> Result<ProxyStream, BoxError> {
        let stream = self.direct.oneshot(server).await?;
        Ok(ProxyStream {
            stream: MaybeHttpsStream::Http(stream),
            is_forwarded: false,
        })
    }

    async fn connect_through(self, proxy: Intercept, server: Uri) -> Result<ProxyStream, BoxError> {
        let address = proxy.uri().clone();
        if !matches!(address.scheme_str(), Some("http" | "https")) {
            let scheme = address.scheme_str().unwrap_or_default();
            let message = format!("proxies of the scheme `{scheme}` are not supported");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message).into());
        }
        let is_tunnelled = server.scheme_str() == Some("https");
        let stream = if is_tunnelled {
            let mut tunnel = Tunnel::new(address, self.to_proxy);
            if let Some(authorization) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(authorization.clone());
            }
            tunnel.oneshot(server).await?
        } else {
            self.to_proxy.oneshot(address).await?
        };
        Ok(ProxyStream {
            stream,
            is_forwarded: !is_tunnelled,
        })
    }
}

impl fmt::Debug for ProxyConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConnector").finish_non_exhaustive()
    }
}

pin_project! {
    /// A connection to a server, or to the proxy that forwards requests to it.
    pub(super) struct ProxyStream {
        #[pin]
        stream: Stream,
        is_forwarded: bool,
    }
}

impl Connection for ProxyStream {
    fn connected(&self) -> Connected {
        // A proxy that forwards reads the server's address from the request.
        self.stream.connected().proxy(self.is_forwarded)
    }
}

impl Read for ProxyStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.project().stream.poll_read(cx, buffer)
    }
}

impl Write for ProxyStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.project().stream.poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.project().stream.poll_write_vectored(cx, bytes)
    }
}
