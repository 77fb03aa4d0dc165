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
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use tower::Service;

use super::body::RequestBody;
use super::config::Config;
use super::head::{MAX_ERROR, ResponseHead};
use super::model::HttpModel;
use super::read;
use crate::protocol::{Operation, OperationCall, Protocol};
use tower_agent::error::{BoxError, Error, Result};

/// The operations of a provider beside its model's calls; created by
/// [`HttpModel::operations`](crate::HttpModel::operations).
///
/// See the [module](crate::operations). Errors are those of [`HttpModel`](crate::HttpModel).
pub struct HttpOperations<P, S>(HttpModel<P, S>);

impl<P: Protocol, S: Clone> HttpModel<P, S> {
    /// Returns the service of the provider's [operations](crate::operations) beside the model's
    /// calls, such as embeddings, with the same address, key and model.
    #[must_use]
    pub fn operations(&self) -> HttpOperations<P, S> {
        HttpOperations(self.clone())
    }
}

fn http_request(call: OperationCall, config: &Config) -> Result<Request<Bytes>> {
    let url = config.url(&call.path)?;
    let has_body = !call.body.is_empty();
    let mut http = Request::new(Bytes::from(call.body));
    *http.method_mut() = call.method;
    *http.uri_mut() = url;
    *http.headers_mut() = config.headers.clone();
    if !has_body {
        http.headers_mut().remove(CONTENT_TYPE);
    }
    Ok(http)
}

impl<P, S, R, B> Service<R> for HttpOperations<P, S>
where
    P: Operation<R>,
    R: tower_agent::Request,
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
    type Response = R::Response;
    type Error = Error;
    type Future = OperationFuture<R::Response>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let model = &mut self.0;
        model
            .http
            .poll_ready(cx)
            .map_err(|error| model.config.unreached(error.into()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The service that was polled ready is the one called, also if it waits for a key.
        let model = &mut self.0;
        let next = model.http.clone();
        let mut service = mem::replace(&mut model.http, next);
        let protocol = model.protocol.clone();
        let mut config = model.config.clone();
        // A prompt is counted as it would be sent.
        let own = protocol.with_prompt(&request, &|prompt| config.issuer.own(prompt));
        let own = own.as_ref().unwrap_or(&request);
        let call = match protocol.operation(own, model.model.as_deref()) {
            Ok(call) => call,
            Err(error) => {
                return OperationFuture {
                    inner: future::ready(Err(error)).boxed(),
                };
            }
        };
        let inner = async move {
            let method = call.method.clone();
            let path = call.path.clone();
            let mut http = http_request(call, &config)?;
            if let Some(per_call) = config.per_call.clone() {
                Arc::make_mut(&mut config)
                    .authorise(&per_call, &*protocol, &mut http)
                    .await?;
            }
            let response = service.call(http.map(RequestBody::from)).await;
            let response = response.map_err(Into::into);
            let result = match response {
                Ok(response) => result_of(&*protocol, &request, &config, response).await,
                Err(error) => Err(config.unreached(error)),
            };
            result.map_err(|error| config.located(error, &method, &path))
        };
        OperationFuture {
            inner: inner.boxed(),
        }
    }
}

async fn result_of<P, R, B>(
    protocol: &P,
    request: &R,
    config: &Arc<Config>,
    response: Response<B>,
) -> Result<R::Response>
where
    P: Operation<R>,
    R: tower_agent::Request,
    B: Body<Data: Send, Error: Into<BoxError>> + Send,
{
    let (parts, body) = response.into_parts();
    let head = ResponseHead::new(parts.status, parts.headers, config.clone());
    if !parts.status.is_success() {
        let body = read::start(body, MAX_ERROR).await;
        return Err(head.refused(protocol, &body));
    }
    let body = Limited::new(body, config.max_response)
        .collect()
        .await
        .map_err(|error| head.broke(error))?
        .to_bytes();
    let metadata = head.metadata().clone();
    protocol
        .result(request, &body, metadata)
        .map_err(|fault| head.fault_beside_model(&fault))
}

impl<P, S: Clone> Clone for HttpOperations<P, S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<P: Protocol, S> fmt::Debug for HttpOperations<P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HttpOperations").field(&self.0).finish()
    }
}

/// The future of an [`HttpOperations`]. Dropping it drops the response's body and thereby the
/// connection.
pub struct OperationFuture<T> {
    inner: BoxFuture<'static, Result<T>>,
}

impl<T> Future for OperationFuture<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for OperationFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationFuture").finish_non_exhaustive()
    }
}
