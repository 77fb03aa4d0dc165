use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use http_body::Body;
use http_body_util::Full;
use http_body_util::combinators::BoxBody;
use rmcp::transport::StreamableHttpService;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::caller::{CallToken, Principal};
use super::handler::{McpServerHandler, ServerInner};
use super::response_body::{ResponseBody, as_json};
use super::session;
use super::sessions::Sessions;
#[cfg(feature = "opentelemetry")]
use crate::trace::HttpContext;

/// An [`McpServer`](super::McpServer) as an HTTP service, over streamable HTTP; it always responds.
///
/// Clients since protocol version 2026-07-28 need no sessions: any process with the same agents can
/// answer. Sessions of earlier clients live in this process. A call lives as long as the connection
/// that waits for its response.
#[derive(Clone)]
pub struct McpHttp {
    inner: StreamableHttpService<McpServerHandler, Sessions>,
    sessions: Arc<Sessions>,
    server: Arc<ServerInner>,
}

impl McpHttp {
    pub(super) fn new(handler: McpServerHandler) -> Self {
        let config = handler.0.http.config();
        let sessions = Arc::new(Sessions::new(&handler.0.http));
        let server = handler.0.clone();
        let inner =
            StreamableHttpService::new(move || Ok(handler.clone()), sessions.clone(), config);
        Self {
            inner,
            sessions,
            server,
        }
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
        let mut request = request;
        #[cfg(feature = "opentelemetry")]
        if let Some(context) = HttpContext::current() {
            request.extensions_mut().insert(context);
        }
        let mut owner = None;
        if let Some(of) = &self.server.http.principal {
            let (mut parts, body) = request.into_parts();
            let Some(principal) = of(&parts) else {
                return ResponseFuture::rejected(StatusCode::UNAUTHORIZED, "Unauthorized");
            };
            if !session::reveal(&mut parts.headers, &self.server.seal, &principal) {
                // As for a session that has never been.
                let why = "Not Found: Session not found";
                return ResponseFuture::rejected(StatusCode::NOT_FOUND, why);
            }
            parts.extensions.insert(Principal(principal.clone()));
            owner = Some(principal);
            request = http::Request::from_parts(parts, body);
        }
        // A call lives as long as somebody waits for its response: this future, and then the body.
        let call_token = CancellationToken::new();
        request
            .extensions_mut()
            .insert(CallToken(call_token.clone()));
        let call_guard = call_token.drop_guard();
        let is_post = request.method() == Method::POST;
        // The streams of a session are expected to be resumable, and these are not.
        let as_json_if_small =
            self.server.http.answers_with_json || session::is_named(request.headers());
        let begins_session = session::begins(request.method(), request.headers());
        let call = self.inner.call(request);
        let sessions = self.sessions.clone();
        let server = self.server.clone();
        ResponseFuture(Box::pin(async move {
            // Before the call, which would answer with an error of the server.
            if begins_session && sessions.are_full().await {
                return Ok(too_many_sessions().map(ResponseBody::new));
            }
            let mut response = call.await?;
            if let Some(principal) = owner {
                session::bind(response.headers_mut(), &server.seal, &principal);
            }
            let response = if is_post {
                as_json(response, as_json_if_small).await
            } else {
                response.map(ResponseBody::new)
            };
            Ok(response.map(|body| body.dropping(call_guard)))
        }))
    }
}

/// How long a client is asked to wait for a session, in seconds.
const RETRY_AFTER: u64 = 30;

fn too_many_sessions() -> http::Response<BoxBody<Bytes, Infallible>> {
    let why = "Service Unavailable: there are too many sessions";
    let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, why);
    let headers = response.headers_mut();
    headers.insert(http::header::RETRY_AFTER, RETRY_AFTER.into());
    response
}

fn refusal(status: StatusCode, why: &'static str) -> http::Response<BoxBody<Bytes, Infallible>> {
    let body = BoxBody::new(Full::new(Bytes::from_static(why.as_bytes())));
    let mut response = http::Response::new(body);
    *response.status_mut() = status;
    response
}

impl fmt::Debug for McpHttp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttp").finish_non_exhaustive()
    }
}

/// The future of [`McpHttp`].
pub struct ResponseFuture(BoxFuture<'static, Result<http::Response<ResponseBody>, Infallible>>);

impl ResponseFuture {
    fn rejected(status: StatusCode, why: &'static str) -> Self {
        let response = refusal(status, why).map(ResponseBody::new);
        Self(Box::pin(std::future::ready(Ok(response))))
    }
}

impl Future for ResponseFuture {
    type Output = Result<http::Response<ResponseBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
