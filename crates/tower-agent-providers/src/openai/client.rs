use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body;
use http_body_util::BodyExt;
use tower::Service;

use super::config::{Config, is_media_type};
use super::head::Head;
use super::read::read;
use super::secrets::without_secrets;
use super::wire;
use crate::RequestBody;
use tower_agent::error::{BoxError, Error, Result};
use tower_agent::model::{ModelRequest, ModelResponse};

/// A model reached by the OpenAI chat-completions protocol, over an HTTP service `S`.
///
/// Clones share their configuration; whether they share connections depends on `S`.
#[derive(Clone)]
pub struct OpenAi<S> {
    http: S,
    config: Arc<Config>,
    model: Option<Arc<str>>,
}

impl<S> OpenAi<S> {
    pub(super) fn new(http: S, config: Config, model: Option<String>) -> Self {
        Self { http, config: Arc::new(config), model: model.map(Into::into) }
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

    fn http_request(&self, request: &ModelRequest) -> Result<Request<RequestBody>> {
        let body = wire::body(request, self.model.as_deref(), self.config.limit_field)?;
        let mut http = Request::new(RequestBody::from(body));
        *http.method_mut() = Method::POST;
        *http.uri_mut() = self.config.url.clone();
        *http.headers_mut() = self.config.headers.clone();
        Ok(http)
    }
}

impl<S, B> Service<ModelRequest> for OpenAi<S>
where
    S: Service<
            Request<RequestBody>,
            Response = Response<B>,
            Error: Into<BoxError>,
            Future: Send + 'static,
        >,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    type Response = ModelResponse;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.http.poll_ready(cx).map_err(|error| self.config.unreached(error.into()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        let http = match self.http_request(&request) {
            // Called at once, so that the service that was polled ready is the one called.
            Ok(http) => self.http.call(http),
            Err(error) => return ResponseFuture { inner: future::ready(Err(error)).boxed() },
        };
        let config = self.config.clone();
        let inner = async move {
            let response = http.await.map_err(|error| config.unreached(error.into()))?;
            answer(response, config, &request).await
        };
        ResponseFuture { inner: inner.boxed() }
    }
}

async fn answer<B>(
    response: Response<B>,
    config: Arc<Config>,
    request: &ModelRequest,
) -> Result<ModelResponse>
where
    B: Body<Error: Into<BoxError>>,
{
    let (parts, body) = response.into_parts();
    let head = Head::new(parts.status, &parts.headers, config);
    if !parts.status.is_success() {
        // The status matters more than a truncated body.
        let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        return Err(head.refused(&body));
    }
    let sink = request.delta_sender().cloned();
    let is_stream = is_stream(&parts.headers, sink.is_some());
    read(head, request.messages().len(), body, is_stream, sink).await
}

/// Returns whether the body is a stream: by its media type, or else by what was requested.
fn is_stream(headers: &HeaderMap, was_asked_for: bool) -> bool {
    let is = |media_type| is_media_type(headers.get(CONTENT_TYPE), media_type);
    is("text/event-stream")
        || was_asked_for
            && (!headers.contains_key(CONTENT_TYPE)
                || is("text/plain")
                || is("application/octet-stream"))
}

impl<S> fmt::Debug for OpenAi<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi")
            .field("url", &without_secrets(&self.config.url.to_string()))
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The future of an [`OpenAi`]. Dropping it drops the response's body and thereby the connection.
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
