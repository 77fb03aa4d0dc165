use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use http_body_util::Limited;
use tower::Service;

use super::base_url::is_media_type;
use super::body::RequestBody;
use super::config::Config;
use super::head::{MAX_ERROR, ResponseHead};
use super::read;
use super::request_headers::RequestHeaders;
use crate::protocol::{Call, Framing, Protocol, schema_of};
use tower_agent::error::{BoxError, Error, Result};
use tower_agent::model::{ModelRequest, ModelResponse, ModelTarget};

/// The room for what usually stands before the messages in a body.
const BEFORE_MESSAGES: usize = 256;

/// A model reached by a protocol `P` over an HTTP service `S`.
///
/// Clones share their configuration; whether they share connections depends on `S`.
///
/// If the request has a [sink](ModelRequest::delta_sender), a streamed response is requested,
/// otherwise a plain one. If the server sends the other form, it is read as well. A stream that
/// ends before the response is complete is an error, and so is an error that the provider reports
/// in a response with a successful status. Errors contain the provider's message and code, status,
/// request id and rate limits, the wait that it asked for, and the method and URL of the call
/// without query and keys. Failed calls are not retried here: put a retry layer around the model or
/// under it.
///
/// A response is read up to a [limit](crate::HttpModelBuilder::max_response). The default client
/// has [time limits](crate::TimeLimits) for a server that is silent. Another HTTP service needs its
/// own, or the model a `TimeoutLayer`: without either, a run waits for ever.
pub struct HttpModel<P, S> {
    pub(super) http: S,
    pub(super) protocol: Arc<P>,
    pub(super) config: Arc<Config>,
    pub(super) model: Option<Arc<str>>,
}

impl<P: Protocol, S> HttpModel<P, S> {
    pub(super) fn new(http: S, protocol: P, config: Config, model: Option<String>) -> Self {
        Self {
            http,
            protocol: Arc::new(protocol),
            config: Arc::new(config),
            model: model.map(Into::into),
        }
    }

    /// Sets the model.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<Arc<str>>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Returns the model, unless a request's settings name another.
    #[must_use]
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns the protocol.
    #[must_use]
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    fn http_request(&self, call: &Call<'_>, config: &Config) -> Result<Request<Bytes>> {
        let mut body = Vec::with_capacity(BEFORE_MESSAGES);
        self.protocol.encode(call, &mut body)?;
        let path = self.protocol.path(call)?;
        let url = config.url(&path)?;
        let mut http = Request::new(Bytes::from(body));
        *http.method_mut() = Method::POST;
        *http.uri_mut() = url;
        *http.headers_mut() = config.headers.clone();
        Ok(http)
    }
}

fn call_of<'a>(request: &'a ModelRequest, model: Option<&'a str>, config: &'a Config) -> Call<'a> {
    Call::new(request)
        .with_model(model)
        .with_host(config.base.host())
}

impl<P, S, B> Service<ModelRequest> for HttpModel<P, S>
where
    P: Protocol,
    S: Service<
            Request<RequestBody>,
            Response = Response<B>,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Response = ModelResponse;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.http
            .poll_ready(cx)
            .map_err(|error| self.config.unreached(error.into()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        let mut config = self.config.clone();
        if let Some(headers) = request.extensions().get::<RequestHeaders>() {
            Arc::make_mut(&mut config).add_headers(headers);
        }
        let own = config.issuer.own(&request);
        let written = own.as_ref().unwrap_or(&request);
        let call = call_of(written, self.model.as_deref(), &self.config);
        // Set before the call, so that a layer outside can name the model even if it fails.
        if let Some(target) = request.extensions().get::<ModelTarget>() {
            target.set(P::TARGET, call.model());
            let base = &self.config.base;
            target.set_server(base.host(), base.port());
        }
        let http = match self.http_request(&call, &config) {
            Ok(http) => http,
            Err(error) => {
                return ResponseFuture {
                    inner: future::ready(Err(error)).boxed(),
                };
            }
        };
        let protocol = self.protocol.clone();
        let model = self.model.clone();
        if let Some(per_call) = config.per_call.clone() {
            // The service that was polled ready waits for the key.
            let next = self.http.clone();
            let service = mem::replace(&mut self.http, next);
            let inner = async move {
                let mut http = http;
                let config_of_call = Arc::make_mut(&mut config);
                config_of_call
                    .authorise(&per_call, &*protocol, &mut http)
                    .await?;
                let mut service = service;
                let http = http.map(RequestBody::from);
                let response = service.call(http).await.map_err(Into::into);
                answer_of(&*protocol, &request, model.as_deref(), &config, response).await
            };
            return ResponseFuture {
                inner: inner.boxed(),
            };
        }
        // Called at once, so that the service that was polled ready is the one called.
        let http = self.http.call(http.map(RequestBody::from));
        let inner = async move {
            let response = http.await.map_err(Into::into);
            answer_of(&*protocol, &request, model.as_deref(), &config, response).await
        };
        ResponseFuture {
            inner: inner.boxed(),
        }
    }
}

async fn answer_of<P: Protocol, B>(
    protocol: &P,
    request: &ModelRequest,
    model: Option<&str>,
    config: &Arc<Config>,
    response: Result<Response<B>, BoxError>,
) -> Result<ModelResponse>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send,
{
    let call = call_of(request, model, config);
    let answer = match response {
        Ok(response) => answer(protocol, &call, config, response).await,
        Err(error) => Err(config.unreached(error)),
    };
    match answer {
        Ok(response) => Ok(with_described_schema(protocol, &call, response)),
        Err(error) => {
            let path = protocol.path(&call).unwrap_or_default();
            Err(config.located(error, &Method::POST, &path))
        }
    }
}

/// Returns the response with the reason why the schema of the answer stood in the instructions.
fn with_described_schema(
    protocol: &impl Protocol,
    call: &Call<'_>,
    response: ModelResponse,
) -> ModelResponse {
    let reason = schema_of(call).and_then(|_| protocol.describes_schema(call));
    let Some(reason) = reason else {
        return response;
    };
    let mut metadata = response.metadata().clone();
    metadata.described_schema = Some(reason.into());
    response.with_metadata(metadata)
}

async fn answer<P: Protocol, B>(
    protocol: &P,
    call: &Call<'_>,
    config: &Arc<Config>,
    response: Response<B>,
) -> Result<ModelResponse>
where
    B: Body<Data: Send, Error: Into<BoxError>> + Send,
{
    let (parts, body) = response.into_parts();
    let is_stream = is_stream(P::FRAMING, &parts.headers, call.is_streamed());
    let head = ResponseHead::new(parts.status, parts.headers, config.clone());
    let sink = call.request().delta_sender().cloned();
    if !parts.status.is_success() {
        // The status matters more than a truncated body.
        let body = read::start(body, MAX_ERROR).await;
        if !protocol.is_answer(&body) {
            return Err(head.refused(protocol, &body));
        }
        return read::whole(head, || protocol.decoder(call), &body, sink).await;
    }
    let body = Limited::new(body, config.max_response);
    if is_stream {
        // Boxed, so that a call that streams nothing has no room for it in its future.
        read::streamed(head, protocol.decoder(call), P::FRAMING, body, sink)
            .boxed()
            .await
    } else {
        read::plain(head, || protocol.decoder(call), body, sink).await
    }
}

/// Returns whether the body is a stream: by its media type, or else by what was requested.
fn is_stream(framing: Framing, headers: &HeaderMap, was_asked_for: bool) -> bool {
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return was_asked_for;
    };
    let mut media_types = framing.media_types().iter();
    if media_types.any(|media_type| is_media_type(Some(content_type), media_type)) {
        return true;
    }
    // Some servers send a stream under the media type of an unknown file.
    was_asked_for
        && (is_media_type(Some(content_type), "text/plain")
            || is_media_type(Some(content_type), "application/octet-stream"))
}

impl<P, S: Clone> Clone for HttpModel<P, S> {
    fn clone(&self) -> Self {
        Self {
            http: self.http.clone(),
            protocol: self.protocol.clone(),
            config: self.config.clone(),
            model: self.model.clone(),
        }
    }
}

impl<P: Protocol, S> fmt::Debug for HttpModel<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpModel")
            .field("provider", &P::PROVIDER)
            .field("base_url", &self.config.base)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The future of an [`HttpModel`]. Dropping it drops the response's body and thereby the
/// connection.
pub struct ResponseFuture {
    inner: BoxFuture<'static, Result<ModelResponse>>,
}

impl Future for ResponseFuture {
    type Output = Result<ModelResponse>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.as_mut().poll(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
