use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tower::Service;
use tower_agent::BoxError;

use super::handler::McpServerHandler;

/// An [`McpServer`](super::McpServer) as an HTTP service, over streamable HTTP; it always responds.
///
/// Clients since protocol version 2026-07-28 need no sessions: any process with the same agents can
/// answer. Sessions of earlier clients live in this process.
#[derive(Clone)]
pub struct McpHttp(StreamableHttpService<McpServerHandler, LocalSessionManager>);

impl McpHttp {
    pub(super) fn new(handler: McpServerHandler) -> Self {
        let config = StreamableHttpServerConfig::default();
        // rmcp's own default, the names of this machine, applies unless hosts were set.
        let config = match handler.0.hosts.clone() {
            Some(hosts) => config.with_allowed_hosts(hosts),
            None => config,
        };
        let sessions = Arc::new(LocalSessionManager::default());
        Self(StreamableHttpService::new(
            move || Ok(handler.clone()),
            sessions,
            config,
        ))
    }
}

impl<B> Service<http::Request<B>> for McpHttp
where
    B: Body<Data: Send, Error: fmt::Display> + Send + 'static,
{
    type Response = http::Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // rmcp's service is always ready, and its `poll_ready` depends on the type of the body.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> ResponseFuture {
        ResponseFuture(self.0.call(request))
    }
}

impl fmt::Debug for McpHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttp").finish_non_exhaustive()
    }
}

/// The future of [`McpHttp`].
pub struct ResponseFuture(
    BoxFuture<'static, Result<http::Response<BoxBody<Bytes, Infallible>>, Infallible>>,
);

impl Future for ResponseFuture {
    type Output = Result<http::Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0
            .as_mut()
            .poll(cx)
            .map_ok(|response| response.map(ResponseBody))
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// The body of a response of [`McpHttp`].
#[derive(Debug)]
pub struct ResponseBody(BoxBody<Bytes, Infallible>);

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.0)
            .poll_frame(cx)
            .map_err(|never| match never {})
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
