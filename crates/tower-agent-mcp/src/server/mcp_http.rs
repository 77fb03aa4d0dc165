use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::{Method, StatusCode};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use rmcp::transport::StreamableHttpService;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::Service;
use tower_agent::serve::{NoPlace, Places};

use super::bounds;
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
    /// The places of requests that are being answered.
    places: Places,
    server: Arc<ServerInner>,
}

impl McpHttp {
    pub(super) fn new(handler: McpServerHandler) -> Self {
        let config = handler.0.http.config();
        let sessions = Arc::new(Sessions::new(&handler.0.http));
        let server = handler.0.clone();
        let places = Places::new(server.http.max_runs, server.http.max_runs_per_principal);
        let inner =
            StreamableHttpService::new(move || Ok(handler.clone()), sessions.clone(), config);
        Self {
            inner,
            sessions,
            places,
            server,
        }
    }
}

impl<B> Service<http::Request<B>> for McpHttp
where
    B: Body<Data: Send> + Send + 'static,
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
        // Only what answers: the stream of a session is bounded with the sessions.
        let place = is_post.then(|| self.places.take(&owner.clone().unwrap_or_default()));
        let place = match place.transpose() {
            Ok(place) => place,
            Err(full) => return ResponseFuture::full(full),
        };
        let mut inner = self.inner.clone();
        let sessions = self.sessions.clone();
        let server = self.server.clone();
        let http = server.http.clone();
        ResponseFuture(Box::pin(async move {
            // Before the call, which would answer with an error of the server.
            if begins_session && sessions.are_full().await {
                let why = "Service Unavailable: there are too many sessions";
                return Ok(come_again(StatusCode::SERVICE_UNAVAILABLE, why).map(ResponseBody::new));
            }
            let (parts, body) = request.into_parts();
            let body = if is_post {
                let most = if begins_session {
                    http.max_request.min(bounds::FIRST_REQUEST)
                } else {
                    http.max_request
                };
                match read(body, most, http.body_time).await {
                    Ok(body) => body,
                    Err(status) => return Ok(refusal(status, why(status)).map(ResponseBody::new)),
                }
            } else {
                Bytes::new()
            };
            let request = http::Request::from_parts(parts, Full::new(body));
            let mut response = inner.call(request).await?;
            if let Some(principal) = owner {
                session::bind(response.headers_mut(), &server.seal, &principal);
            }
            let response = if is_post {
                as_json(response, as_json_if_small).await
            } else {
                response.map(ResponseBody::new)
            };
            let guard = (call_guard, place);
            Ok(response.map(|body| body.dropping(guard, http.read_time)))
        }))
    }
}

/// The time that a client is asked to wait for a place, in seconds.
const RETRY_AFTER: u64 = 30;

fn come_again(status: StatusCode, why: &'static str) -> http::Response<BoxBody<Bytes, Infallible>> {
    let mut response = refusal(status, why);
    let headers = response.headers_mut();
    headers.insert(http::header::RETRY_AFTER, RETRY_AFTER.into());
    response
}

/// Reads a body of at most so many bytes within a time. Fails with the status for one that is not.
async fn read<B>(body: B, most: usize, time: Duration) -> Result<Bytes, StatusCode>
where
    B: Body<Data: Send> + Send,
{
    // Before it is read, if its length is known.
    if body.size_hint().lower() > most as u64 {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let reading = async {
        let mut body = pin!(body);
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| StatusCode::BAD_REQUEST)?;
            let Ok(mut data) = frame.into_data() else {
                continue;
            };
            if data.remaining() > most - all.len() {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            let length = data.remaining();
            all.put(data.copy_to_bytes(length));
        }
        Ok(all.freeze())
    };
    // Of the whole: a body that comes a byte at a time would keep its place for as long as it
    // likes.
    let read = timeout(time, reading).await;
    read.unwrap_or(Err(StatusCode::REQUEST_TIMEOUT))
}

fn why(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Payload Too Large: the request is too large",
        StatusCode::REQUEST_TIMEOUT => "Request Timeout: the request did not arrive in time",
        _ => "Bad Request: the request did not arrive",
    }
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
    fn full(full: NoPlace) -> Self {
        let (status, why) = match full {
            NoPlace::Each { .. } => (
                StatusCode::TOO_MANY_REQUESTS,
                "Too Many Requests: too many requests of yours are under way",
            ),
            _ => (
                StatusCode::SERVICE_UNAVAILABLE,
                "Service Unavailable: there are too many requests at once",
            ),
        };
        let response = come_again(status, why).map(ResponseBody::new);
        Self(Box::pin(std::future::ready(Ok(response))))
    }

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
