//! The server: who may call, one call, and its answer as a whole or as a stream.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt;
use tower_agent::model::BoxModel;
use tower_agent::serve::{Place, Places};
use tower_agent::stream::EventStream;
use tower_agent::{AgentRequest, Error, ErrorKind, ModelRequest, ModelResponse, Request, Result};
use tower_agent_middleware::rate_limit::Exhausted;

use crate::answer::{Chunks, completion};
use crate::connections::Limits;
use crate::request::{ChatRequest, Form, Refusal};
use crate::settings::Tenant;
use crate::stack::TenantName;

/// The calls at once.
const CALLS: usize = 1000;

/// The calls at once of one tenant.
const CALLS_PER_TENANT: usize = 200;

/// The events that may wait for a client.
const CAPACITY: usize = 16;

#[derive(Clone)]
struct Gateway {
    model: BoxModel,
    tenants: Arc<[Tenant]>,
    limits: Limits,
    places: Places,
}

pub(crate) fn app(model: BoxModel, tenants: Vec<Tenant>, limits: Limits) -> Router {
    let gateway = Gateway {
        model,
        tenants: tenants.into(),
        limits,
        places: Places::new(CALLS, CALLS_PER_TENANT),
    };
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .with_state(gateway)
}

async fn chat(State(gateway): State<Gateway>, request: HttpRequest) -> Response {
    let headers = request.headers();
    let Some(tenant) = gateway.tenant(headers) else {
        return problem(StatusCode::UNAUTHORIZED, "unknown key", None);
    };
    let place = match gateway.places.take(&tenant) {
        Ok(place) => place,
        Err(full) => return problem(StatusCode::TOO_MANY_REQUESTS, &full.to_string(), None),
    };
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if !is_json {
        let why = "the body is not `application/json`";
        return problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, why, None);
    }
    // After the key: a stranger cannot make the server read.
    let body = Bytes::from_request(request, &());
    let body = match timeout(gateway.limits.body, body).await {
        Ok(Ok(body)) => body,
        Ok(Err(rejection)) => return problem(rejection.status(), &rejection.body_text(), None),
        Err(_) => {
            let why = "the body did not arrive in time";
            return problem(StatusCode::REQUEST_TIMEOUT, why, None);
        }
    };
    let request = match ChatRequest::from_json(&body) {
        Ok(request) => request,
        Err(refusal) => return refused(&refusal),
    };
    let form = request.form();
    let request = match request.read() {
        Ok(request) => request,
        Err(refusal) => return refused(&refusal),
    };
    match gateway.answer(tenant, place, request, form).await {
        Ok(response) => response,
        Err(error) => failure(&error),
    }
}

impl Gateway {
    /// Returns the name of the tenant that a key belongs to.
    fn tenant(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let key = value.strip_prefix("Bearer ")?;
        let mut tenants = self.tenants.iter();
        let tenant = tenants.find(|tenant| is_same(&tenant.key, key))?;
        Some(tenant.name.clone())
    }

    /// Answers a call, which has its place until it is over.
    async fn answer(
        &self,
        tenant: Arc<str>,
        place: Place,
        request: ModelRequest,
        form: Form,
    ) -> Result<Response> {
        // A run of its own for each call, with its tenant.
        let run = AgentRequest::conversation([]).with_extension(TenantName(tenant));
        let run = run.context().clone();
        let request = request.with_context(run.clone());
        let Form::Stream { with_usage } = form else {
            let response = self.model.clone().oneshot(request).await?;
            return Ok(Json(completion(run.run_id(), &response)).into_response());
        };
        let chunks = Chunks::new(run.run_id(), &request, with_usage);
        let (sink, events) = tower_agent::stream::channel(CAPACITY);
        let call = self.model.clone().oneshot(request.with_delta_sender(sink));
        let mut body = Box::pin(body(call.boxed(), events, chunks));
        // Nothing is sent before the first piece: until then a failure has a status of its own.
        let first = body.next().await.transpose()?.unwrap_or_default();
        let first = stream::iter([Ok(first)]);
        let body = first.chain(body).map(move |piece| {
            let _place = &place;
            // A client has read a part of the answer: it is told in the stream.
            Ok::<_, Infallible>(piece.unwrap_or_else(|error| line(&described(&error))))
        });
        let headers = [(header::CONTENT_TYPE, "text/event-stream")];
        Ok((headers, Body::from_stream(body)).into_response())
    }
}

/// Returns the body of a streamed answer. It drives the call, so a client that goes away ends it,
/// and one that does not read holds it up.
fn body(
    call: BoxFuture<'static, Result<ModelResponse>>,
    mut events: EventStream,
    mut chunks: Chunks,
) -> impl Stream<Item = Result<Bytes>> {
    let mut call = Some(call);
    let mut response = None;
    stream::poll_fn(move |cx| {
        if let Some(running) = &mut call
            && let Poll::Ready(result) = running.poll_unpin(cx)
        {
            // Drops the sink as well, so that the events end.
            call = None;
            match result {
                Ok(complete) => response = Some(complete),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        // All deltas before the end, which are complete once the events have ended.
        loop {
            match events.poll_next_unpin(cx) {
                Poll::Ready(Some(event)) => {
                    if let Some(chunk) = chunks.of(&event.kind) {
                        return Poll::Ready(Some(Ok(line(&chunk))));
                    }
                }
                Poll::Ready(None) => {
                    let end = response.take().map(|response| {
                        let mut end = String::new();
                        for chunk in chunks.end(&response) {
                            end += &format!("data: {chunk}\n\n");
                        }
                        Ok(Bytes::from(end + "data: [DONE]\n\n"))
                    });
                    return Poll::Ready(end);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
}

/// Compares keys in a time that does not tell how much of them is right.
fn is_same(known: &str, given: &str) -> bool {
    let pairs = known.bytes().zip(given.bytes());
    let differs = pairs.fold(0, |differs, (known, given)| differs | (known ^ given));
    known.len() == given.len() && differs == 0
}

fn line(chunk: &Value) -> Bytes {
    format!("data: {chunk}\n\n").into()
}

/// Returns the answer to a request that is refused before anything is called. `param` is where the
/// fault is.
fn problem(status: StatusCode, message: &str, param: Option<&str>) -> Response {
    let error = json!({ "message": message, "type": "invalid_request_error", "param": param });
    (status, Json(json!({ "error": error }))).into_response()
}

fn refused(refusal: &Refusal) -> Response {
    let Refusal { path, message } = refusal;
    if path.is_empty() {
        return problem(StatusCode::BAD_REQUEST, message, None);
    }
    let message = format!("{path}: {message}");
    problem(StatusCode::BAD_REQUEST, &message, Some(path))
}

/// Returns the answer to a call that has failed.
fn failure(error: &Error) -> Response {
    let status = match error.kind() {
        ErrorKind::InvalidRequest | ErrorKind::ContextLength => StatusCode::BAD_REQUEST,
        ErrorKind::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        // The tenant's own limit.
        ErrorKind::Overloaded if error.downcast_ref::<Exhausted>().is_some() => {
            StatusCode::TOO_MANY_REQUESTS
        }
        ErrorKind::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        ErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let mut response = (status, Json(described(error))).into_response();
    if let Some(wait) = error.retry_after() {
        let seconds = wait.as_secs_f64().ceil() as u64;
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn described(error: &Error) -> Value {
    let kind = error.kind().to_string();
    // The text of a provider may name its account: it is for the log.
    let message = match error.kind() {
        ErrorKind::InvalidRequest | ErrorKind::ContextLength | ErrorKind::Overloaded => {
            error.message().to_owned()
        }
        _ => format!("the provider failed: {kind}"),
    };
    eprintln!("{error}");
    json!({ "error": { "message": message, "type": kind } })
}
