use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, GetExtensions, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use tower::{BoxError, ServiceExt};
use tower_agent::{Error, ErrorKind};
use tracing::{Instrument, Span};

use super::http_fault::HttpFault;
use super::limited::{BodyError, Limited};
use super::readable::readable;
use crate::client::calls::{ActiveCall, Calls};
use crate::client::http_service::{BoxedBody, HttpService};

/// The maximum size of the body of an error response, in bytes.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// Streamable HTTP over any HTTP service.
#[derive(Clone)]
pub(in crate::client) struct HttpClient {
    service: HttpService,
    max_message_size: usize,
    calls: Arc<Calls>,
}

type Result<T, E = StreamableHttpError<HttpFault>> = std::result::Result<T, E>;

/// The headers that rmcp asks for.
struct Headers {
    session: Option<Arc<str>>,
    last_event: Option<String>,
    token: Option<String>,
    custom: HashMap<HeaderName, HeaderValue>,
}

impl HttpClient {
    pub(super) fn new(service: HttpService, max_message_size: usize, calls: Arc<Calls>) -> Self {
        Self {
            service,
            max_message_size,
            calls,
        }
    }

    /// Returns the error that makes rmcp begin a new session. The server was probably started
    /// again, and may have other tools.
    fn expired(&self) -> StreamableHttpError<HttpFault> {
        self.calls.set_tools_changed();
        StreamableHttpError::SessionExpired
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        headers: Headers,
        body: Option<Vec<u8>>,
    ) -> Result<http::Response<BoxedBody>> {
        let accept = format!("{JSON_MIME_TYPE}, {EVENT_STREAM_MIME_TYPE}");
        let mut request = http::Request::builder()
            .method(method)
            .uri(url)
            .header(ACCEPT, accept);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, JSON_MIME_TYPE);
        }
        if let Some(token) = headers.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(session) = headers.session {
            request = request.header(HEADER_SESSION_ID, &*session);
        }
        if let Some(last) = headers.last_event {
            request = request.header(HEADER_LAST_EVENT_ID, last);
        }
        for (name, value) in headers.custom {
            request = request.header(name, value);
        }
        let body = Bytes::from(body.unwrap_or_default());
        let request = request.body(body).map_err(|error| {
            let message = format!("cannot make the HTTP request: {error}");
            client(Error::new(ErrorKind::InvalidRequest, message).with_source(error))
        })?;
        self.service
            .clone()
            .oneshot(request)
            .await
            .map_err(|error| client(unreachable(error)))
    }

    /// Reads a body that is not a stream.
    async fn read(&self, body: BoxedBody, max: usize) -> Result<Vec<u8>> {
        let mut bytes = body.into_data_stream();
        let mut read = Vec::new();
        while let Some(piece) = bytes.next().await {
            let piece = piece.map_err(|error| client(broke(error)))?;
            if piece.len() > max - read.len() {
                let error = BodyError::TooLarge { max };
                return Err(client(Error::from_source(ErrorKind::Protocol, error)));
            }
            read.extend_from_slice(&piece);
        }
        Ok(read)
    }

    fn events(&self, body: BoxedBody) -> BoxStream<'static, Result<Sse, SseError>> {
        let bytes = Limited::new(body.into_data_stream(), self.max_message_size);
        let events = SseStream::from_bytes_stream(bytes);
        events.map_ok(made_readable).boxed()
    }

    /// Reads a response that is not a success. A JSON-RPC error is the server's answer, anything
    /// else is a failure.
    async fn refused(
        &self,
        response: http::Response<BoxedBody>,
        message: &ClientJsonRpcMessage,
        had_session: bool,
    ) -> Result<StreamableHttpPostResponse> {
        let status = response.status();
        let headers = response.headers().clone();
        let is_json = is_of(&headers, JSON_MIME_TYPE);
        let body = self
            .read(response.into_body(), MAX_ERROR_BODY)
            .await
            // The status says enough, and matters more than a body that broke off.
            .unwrap_or_default();
        let is_auth = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let rejection = match serde_json::from_slice(&body) {
            Ok(ServerJsonRpcMessage::Error(error)) if is_json => Some(error),
            _ => None,
        };
        // A server without sessions that does not know the method is of an earlier version: as an
        // answer, and not a failure, it makes rmcp fall back to `initialize`.
        if let ClientJsonRpcMessage::Request(request) = message
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && !had_session
            && status.is_client_error()
            && !is_auth
            && !matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
            )
        {
            let error = match rejection {
                Some(rejection) => rejection.error,
                None => ErrorData::invalid_request(format!("HTTP {status}"), None),
            };
            let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(answer, None));
        }
        // A rejected login keeps its kind, even if the body is JSON-RPC.
        if let Some(rejection) = rejection
            && !is_auth
        {
            return Ok(StreamableHttpPostResponse::Json(
                ServerJsonRpcMessage::Error(rejection),
                None,
            ));
        }
        Err(client(failed(status, &headers, &body)))
    }
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFault;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse> {
        let had_session = session.is_some();
        let body = serde_json::to_vec(&message)?;
        let headers = Headers {
            session,
            last_event: None,
            token,
            custom,
        };
        let sending = self.send(Method::POST, &uri, headers, Some(body));
        // rmcp sends from a task of its own, where no span is entered.
        let response = sending.instrument(span_of(&message)).await?;
        let status = response.status();
        let headers = response.headers();
        if status == StatusCode::NOT_FOUND && had_session {
            return Err(self.expired());
        }
        challenged(status, headers)?;
        if !status.is_success() {
            return self.refused(response, &message, had_session).await;
        }
        let session = headers.get(HEADER_SESSION_ID);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let is_request = matches!(message, ClientJsonRpcMessage::Request(_));
        if is_of(headers, EVENT_STREAM_MIME_TYPE) {
            let events = self.events(response.into_body());
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        // Notifications and answers have no answer themselves, so that any body is ignored.
        if !is_request || matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !is_of(headers, JSON_MIME_TYPE) {
            let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            let media_type = media_type.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            return Err(StreamableHttpError::UnexpectedContentType(media_type));
        }
        let body = self
            .read(response.into_body(), self.max_message_size)
            .await?;
        let body = readable(&body).unwrap_or(body);
        match serde_json::from_slice(&body) {
            Ok(answer) => Ok(StreamableHttpPostResponse::Json(answer, session)),
            Err(error) => {
                let message = format!("the answer is not JSON-RPC: {error}");
                Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(
                    message,
                )))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<()> {
        let headers = Headers {
            session: Some(session),
            last_event: None,
            token,
            custom,
        };
        let response = self.send(Method::DELETE, &uri, headers, None).await?;
        match response.status() {
            // A server need not end sessions for its clients.
            StatusCode::METHOD_NOT_ALLOWED => Ok(()),
            status if status.is_success() => Ok(()),
            status => Err(client(failed(status, response.headers(), &[]))),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        custom: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>> {
        let had_session = session.is_some();
        let headers = Headers {
            session,
            last_event,
            token,
            custom,
        };
        let response = self.send(Method::GET, &uri, headers, None).await?;
        let status = response.status();
        let headers = response.headers();
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                return Err(StreamableHttpError::ServerDoesNotSupportSse);
            }
            StatusCode::NOT_FOUND if had_session => {
                return Err(self.expired());
            }
            _ => challenged(status, headers)?,
        }
        if !status.is_success() {
            return Err(client(failed(status, headers, &[])));
        }
        if !is_of(headers, EVENT_STREAM_MIME_TYPE) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        Ok(self.events(response.into_body()))
    }
}

/// Returns the span of the call that a message belongs to.
fn span_of(message: &ClientJsonRpcMessage) -> Span {
    let call = match message {
        ClientJsonRpcMessage::Request(request) => request.request.extensions().get::<ActiveCall>(),
        _ => None,
    };
    call.map_or_else(Span::none, |call| call.span.clone())
}

fn made_readable(mut event: Sse) -> Sse {
    let data = event
        .data
        .as_ref()
        .and_then(|data| readable(data.as_bytes()));
    if let Some(data) = data.and_then(|data| String::from_utf8(data).ok()) {
        event.data = Some(data);
    }
    event
}

fn client(error: Error) -> StreamableHttpError<HttpFault> {
    StreamableHttpError::Client(HttpFault(error))
}

fn is_of(headers: &HeaderMap, media_type: &str) -> bool {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    // Without parameters such as the character set.
    let content_type = content_type.split(';').next().unwrap_or_default();
    content_type.trim().eq_ignore_ascii_case(media_type)
}

fn challenged(status: StatusCode, headers: &HeaderMap) -> Result<()> {
    match headers
        .get(WWW_AUTHENTICATE)
        .and_then(|value| value.to_str().ok())
    {
        Some(challenge) if status == StatusCode::UNAUTHORIZED => Err(
            StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge.to_owned())),
        ),
        _ => Ok(()),
    }
}

/// Converts an error of the HTTP service. Errors of `tower-agent` and of tower keep their kind.
fn unreachable(error: BoxError) -> Error {
    let error = Error::from(error);
    match error.kind() {
        ErrorKind::Other => {
            let message = format!("the server could not be reached: {}", error.message());
            Error::new(ErrorKind::Connection, message).with_source(error)
        }
        _ => error,
    }
}

fn broke(error: BoxError) -> Error {
    Error::from_source(ErrorKind::Connection, BodyError::Broken(error))
}

fn failed(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Auth,
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::RateLimited,
        StatusCode::SERVICE_UNAVAILABLE => ErrorKind::Overloaded,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => ErrorKind::Timeout,
        status if status.is_server_error() => ErrorKind::Provider,
        _ => ErrorKind::InvalidRequest,
    };
    // Proxies answer with whole pages of HTML; the start is enough to find the cause.
    let start: String = String::from_utf8_lossy(body).chars().take(256).collect();
    let start = start.trim();
    let mut message = format!("the server answered with HTTP {status}");
    if !start.is_empty() {
        message.push_str(": ");
        message.push_str(start);
    }
    let error = Error::new(kind, message);
    let after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    match after.and_then(|seconds| seconds.trim().parse().ok()) {
        Some(seconds) => error.with_retry_after(Duration::from_secs(seconds)),
        None => error,
    }
}
