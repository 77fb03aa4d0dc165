use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, GetExtensions, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_LAST_EVENT_ID, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::{Sse, SseStream};
use tokio::time::{sleep, timeout};
use tower::{BoxError, ServiceExt};
use tower_agent::{Error, ErrorKind};
use tracing::{Instrument, Span};

use super::answers::{self, Answers, Opened, Sorted};
use super::http_fault::HttpFault;
use super::limited::{BodyError, Limited};
use super::readable::readable;
use super::refused::Refused;
use crate::client::calls::{ActiveCall, Calls};
use crate::client::http_service::{BoxedBody, HttpService};

/// The maximum size of the body of an error response, in bytes.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// The time that the body of an error response may take. The status says enough without it.
const ERROR_BODY: Duration = Duration::from_secs(5);

/// Streamable HTTP over any HTTP service.
#[derive(Clone)]
pub(in crate::client) struct HttpClient {
    service: HttpService,
    max_message_size: usize,
    calls: Arc<Calls>,
    answers: Arc<Answers>,
    /// Set once the server has opened a stream: only then does its refusal say something.
    had_stream: Arc<AtomicBool>,
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
    pub(super) fn new(
        service: HttpService,
        max_message_size: usize,
        calls: Arc<Calls>,
        answers: Arc<Answers>,
    ) -> Self {
        Self {
            service,
            max_message_size,
            calls,
            answers,
            had_stream: Arc::default(),
        }
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

    /// Reads a stream of events, which answers a request or belongs to none.
    fn events(
        &self,
        body: BoxedBody,
        of: Option<RequestId>,
        in_session: bool,
    ) -> BoxStream<'static, Result<Sse, SseError>> {
        let bytes = Limited::new(body.into_data_stream(), self.max_message_size);
        let events = SseStream::from_bytes_stream(bytes).map_ok(made_readable);
        let this = self.clone();
        let opened = Opened::new(self.answers.clone(), of.clone());
        let events = events.flat_map(move |event| {
            let event = match event {
                Ok(event) => event,
                Err(error) => return stream::iter(vec![Err(error)]),
            };
            if let (Some(of), Some(id)) = (&of, &event.id) {
                this.answers.note_event(of, id);
            }
            if event
                .data
                .as_ref()
                .is_some_and(|data| !data.trim().is_empty())
            {
                opened.note_message();
            }
            stream::iter(this.sorted(event, of.as_ref(), in_session))
        });
        events.boxed()
    }

    /// Sorts the messages in one event.
    fn sorted(
        &self,
        event: Sse,
        of: Option<&RequestId>,
        in_session: bool,
    ) -> Vec<Result<Sse, SseError>> {
        let data = event.data.as_deref().unwrap_or_default();
        let Some(sorted) = self.answers.sort(data, of) else {
            return vec![Ok(event)];
        };
        if in_session {
            // This call has failed already; the next one begins a session.
            self.note_session_in(&sorted);
        }
        let messages = sorted.before.into_iter().chain(sorted.own);
        let event_of = |message: Value| Sse {
            data: Some(message.to_string()),
            // Some servers name an error so, and rmcp reads no named event.
            event: None,
            ..event.clone()
        };
        messages.map(|message| Ok(event_of(message))).collect()
    }

    /// Makes the next call begin a new session if an answer without an id refuses this one. Returns
    /// whether it does.
    fn note_session_in(&self, sorted: &Sorted) -> bool {
        let is_refused = sorted.is_without_id
            && sorted
                .own
                .as_ref()
                .and_then(|own| own["error"]["message"].as_str())
                .is_some_and(is_about_session);
        if is_refused {
            self.calls.set_lost();
        }
        is_refused
    }

    /// Reads the JSON that answers a request.
    fn json(
        &self,
        body: Vec<u8>,
        to: &RequestId,
        session: Option<String>,
        had_session: bool,
    ) -> Result<StreamableHttpPostResponse> {
        let body = readable(&body).unwrap_or(body);
        let sorted = std::str::from_utf8(&body)
            .ok()
            .and_then(|body| self.answers.sort(body, Some(to)));
        let Some(sorted) = sorted else {
            let answer = serde_json::from_slice(&body).map_err(not_json_rpc)?;
            if matches!(
                answer,
                ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)
            ) {
                return Ok(StreamableHttpPostResponse::Json(answer, session));
            }
            self.answers.pass_on(answer, Some(to));
            return Err(no_answer());
        };
        let is_refused = had_session && self.note_session_in(&sorted);
        for message in sorted.before {
            self.answers.pass_on_value(message, Some(to));
        }
        let own = sorted.own.ok_or_else(no_answer)?;
        if is_refused {
            return Err(client(session_refused(&reason(&own["error"]))));
        }
        let own = serde_json::from_value(own).map_err(not_json_rpc)?;
        Ok(StreamableHttpPostResponse::Json(own, session))
    }

    /// Reads a response that is not a success: an answer to the request, or the error of a server
    /// that did not carry it out, or of somebody before it.
    async fn refused(
        &self,
        response: http::Response<BoxedBody>,
        message: &ClientJsonRpcMessage,
        had_session: bool,
    ) -> Result<StreamableHttpPostResponse> {
        let status = response.status();
        let headers = response.headers().clone();
        let body = timeout(ERROR_BODY, self.error_body(response)).await;
        // The status says enough, and matters more than a body that broke off.
        let body = body.unwrap_or_default();
        let is_auth = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let answer = Rejection::read(&body);
        let ClientJsonRpcMessage::Request(request) = message else {
            // Nothing waits for an answer to a notification. A server that wants none, and says so
            // in JSON-RPC, can still be used.
            return match answer {
                Some(_) if !is_auth => Ok(StreamableHttpPostResponse::Accepted),
                _ => Err(client(failed(status, &headers, &start_of(&body)))),
            };
        };
        if had_session && refuses_session(status, answer.as_ref(), &body) {
            self.calls.set_lost();
            let why = answer.map_or_else(|| start_of(&body), |answer| answer.reason());
            return Err(client(session_refused(&format!("HTTP {status}: {why}"))));
        }
        // A server without sessions that does not know the method is of an earlier version: as an
        // answer, and not a failure, it makes rmcp fall back to `initialize`.
        let is_discovery = matches!(request.request, ClientRequest::DiscoverRequest(_));
        let is_passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
        );
        if is_discovery && !had_session && status.is_client_error() && !is_auth && !is_passing {
            let error = match answer {
                Some(answer) => answer.error,
                None => ErrorData::invalid_request(format!("HTTP {status}"), None),
            };
            let answer = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            return Ok(StreamableHttpPostResponse::Json(answer, None));
        }
        match answer {
            // A server that names the request has read it. The status keeps its kind where it says
            // more than the error.
            Some(answer)
                if answers::is(&answer.id, &request.id)
                    && !is_auth
                    && !is_passing
                    && status != StatusCode::SERVICE_UNAVAILABLE =>
            {
                let answer = ServerJsonRpcMessage::error(answer.error, Some(request.id.clone()));
                Ok(StreamableHttpPostResponse::Json(answer, None))
            }
            Some(answer) => Err(client(failed(status, &headers, &answer.reason()))),
            None => Err(client(failed(status, &headers, &start_of(&body)))),
        }
    }

    /// Reads the body of an error response; of a stream the first message.
    async fn error_body(&self, response: http::Response<BoxedBody>) -> Vec<u8> {
        let is_stream = is_of(response.headers(), EVENT_STREAM_MIME_TYPE);
        let body = response.into_body();
        if !is_stream {
            let body = self.read(body, MAX_ERROR_BODY).await.unwrap_or_default();
            return readable(&body).unwrap_or(body);
        }
        let bytes = Limited::new(body.into_data_stream(), MAX_ERROR_BODY);
        let mut events = SseStream::from_bytes_stream(bytes).map_ok(made_readable);
        while let Some(Ok(event)) = events.next().await {
            match event.data {
                Some(data) if !data.trim().is_empty() => return data.into_bytes(),
                _ => {}
            }
        }
        Vec::new()
    }
}

/// A JSON-RPC error in the body of an error response.
struct Rejection {
    id: Value,
    error: ErrorData,
}

impl Rejection {
    fn read(body: &[u8]) -> Option<Self> {
        let messages = match serde_json::from_slice(body).ok()? {
            Value::Array(messages) => messages,
            message => vec![message],
        };
        messages.into_iter().find_map(|mut message| {
            message.get("jsonrpc")?;
            let error = answers::readable_error(message.get("error")?);
            Some(Self {
                id: message["id"].take(),
                error: serde_json::from_value(error).ok()?,
            })
        })
    }

    fn reason(&self) -> String {
        format!("{} (code {})", self.error.message, self.error.code.0)
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
        challenged(status, headers)?;
        if !status.is_success() {
            return self.refused(response, &message, had_session).await;
        }
        let session = headers.get(HEADER_SESSION_ID);
        let session = session.and_then(|id| id.to_str().ok()).map(str::to_owned);
        let request = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id),
            _ => None,
        };
        if is_of(headers, EVENT_STREAM_MIME_TYPE) {
            let events = self.events(response.into_body(), request, had_session);
            return Ok(StreamableHttpPostResponse::Sse(events, session));
        }
        let Some(request) = request else {
            // Notifications and answers have no answer themselves, so that any body is ignored.
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        let is_json = is_of(headers, JSON_MIME_TYPE);
        let is_accepted = matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT);
        if is_accepted && !is_json {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if !is_json {
            let media_type = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
            let media_type = media_type.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            return Err(StreamableHttpError::UnexpectedContentType(media_type));
        }
        let body = self
            .read(response.into_body(), self.max_message_size)
            .await?;
        // The answer comes on the stream that belongs to no request.
        if is_accepted && body.trim_ascii().is_empty() {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        self.json(body, &request, session, had_session)
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
            // A server need not end sessions for its clients, nor know one that has ended.
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST => {
                Ok(())
            }
            status if status.is_success() => Ok(()),
            status => Err(client(failed(status, response.headers(), ""))),
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
        let of = last_event
            .as_deref()
            .and_then(|event| self.answers.resumed_after(event));
        let wait = self.answers.wait_before_stream(of.as_ref());
        if !wait.is_zero() {
            sleep(wait).await;
        }
        let headers = Headers {
            session,
            last_event,
            token,
            custom,
        };
        let response = self.send(Method::GET, &uri, headers, None).await?;
        let status = response.status();
        let headers = response.headers();
        if status == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        challenged(status, headers)?;
        if !status.is_success() {
            let headers = headers.clone();
            let body = timeout(ERROR_BODY, self.error_body(response)).await;
            let body = body.unwrap_or_default();
            let answer = Rejection::read(&body);
            // One that never was says nothing of the session: many servers have none, and say so in
            // the words of their framework.
            let had_stream = of.is_some() || self.had_stream.load(Ordering::Relaxed);
            if had_session && had_stream && refuses_session(status, answer.as_ref(), &body) {
                self.calls.set_lost();
                // The error for which rmcp does not try again.
                return Err(StreamableHttpError::ServerDoesNotSupportSse);
            }
            return Err(client(failed(status, &headers, &start_of(&body))));
        }
        if !is_of(headers, EVENT_STREAM_MIME_TYPE) {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        self.had_stream.store(true, Ordering::Relaxed);
        Ok(self.events(response.into_body(), of, had_session))
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

fn no_answer() -> StreamableHttpError<HttpFault> {
    let message = "there is no answer to the request in what the server sent";
    StreamableHttpError::UnexpectedServerResponse(Cow::Borrowed(message))
}

fn not_json_rpc(error: serde_json::Error) -> StreamableHttpError<HttpFault> {
    let message = format!("the answer is not JSON-RPC: {error}");
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(message))
}

/// Returns whether a response says that the server does not know the session. By the protocol it is
/// 404; the official SDKs have said it with 400 and an error, and others in words of their own.
fn refuses_session(status: StatusCode, answer: Option<&Rejection>, body: &[u8]) -> bool {
    match status {
        StatusCode::NOT_FOUND => !answer.is_some_and(|answer| {
            !answer.id.is_null() && answer.error.code == ErrorCode::METHOD_NOT_FOUND
        }),
        StatusCode::GONE => true,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => match answer {
            Some(answer) => is_about_session(&answer.error.message),
            None => is_about_session(&start_of(body)),
        },
        _ => false,
    }
}

/// Returns whether an error is about the session, or its beginning ("Server not initialized").
fn is_about_session(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    let words = ["session", "not initialized", "before initialization"];
    words.iter().any(|words| error.contains(words))
}

/// The error of a request that can be sent again in a new session.
fn session_refused(why: &str) -> Error {
    let message = format!("the server refused the session: {why}");
    Error::new(ErrorKind::Connection, message).with_source(Refused::Session)
}

fn reason(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or_default();
    format!("{message} (code {})", error["code"])
}

/// Proxies answer with whole pages of HTML; the start is enough to find the cause.
fn start_of(body: &[u8]) -> String {
    let start: String = String::from_utf8_lossy(body).chars().take(256).collect();
    start.trim().to_owned()
}

fn failed(status: StatusCode, headers: &HeaderMap, why: &str) -> Error {
    let kind = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::Auth,
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::RateLimited,
        StatusCode::SERVICE_UNAVAILABLE => ErrorKind::Overloaded,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => ErrorKind::Timeout,
        status if status.is_server_error() => ErrorKind::Provider,
        _ => ErrorKind::InvalidRequest,
    };
    let mut message = format!("the server answered with HTTP {status}");
    if !why.is_empty() {
        message.push_str(": ");
        message.push_str(why);
    }
    let mut error = Error::new(kind, message);
    // Of the others nobody knows how far the server came.
    let is_refused = status == StatusCode::SERVICE_UNAVAILABLE
        || status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT;
    if is_refused {
        error = error.with_source(Refused::Request);
    }
    let after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok());
    match after.and_then(|seconds| seconds.trim().parse().ok()) {
        Some(seconds) => error.with_retry_after(Duration::from_secs(seconds)),
        None => error,
    }
}
