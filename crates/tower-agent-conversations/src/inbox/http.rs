use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::error::{BoxError, Resolution};
use tower_service::Service;

use super::Inbox;
use crate::bounds::{BODY, BODY_TIME, PAGE};
use crate::key::ConversationKey;
use crate::query::{ConversationInfo, ConversationQuery};
use crate::question::Question;
use crate::refusal::{Refusal, RefusalKind};
use crate::roles::Roles;
use crate::time::{millis, time};

/// An [`Inbox`] over HTTP, for a staff's page or program: `GET` lists the open questions, `POST`
/// answers one.
///
/// A sender needs a role, as the server's own function says it: nothing in a request gives one. Put
/// a layer around the service that authenticates the sender. Cloning is O(1).
///
/// ```
/// use bytes::Bytes;
/// use http::Request;
/// use http_body_util::Full;
/// use tower::ServiceExt;
/// use tower_agent_conversations::{Inboxes, InboxService, Roles};
///
/// /// Inserted by a layer that has verified a token.
/// #[derive(Clone)]
/// struct Staff;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_agent::BoxError> {
/// let inbox = Inboxes::default(); // `.with(agui)`
/// let service = InboxService::new(inbox, |parts| {
///     let is_staff = parts.extensions.get::<Staff>().is_some();
///     // The name of who answers stands in the conversation.
///     Roles::new(is_staff.then_some("support")).named("sam")
/// });
/// let request = Request::get("/inbox").body(Full::<Bytes>::default())?;
/// assert_eq!(service.clone().oneshot(request).await?.status(), 403);
/// let request = Request::get("/inbox").extension(Staff).body(Full::<Bytes>::default())?;
/// assert_eq!(service.oneshot(request).await?.status(), 200);
/// # Ok(())
/// # }
/// ```
///
/// # The list
///
/// `{"questions": [..], "next": ".."}`: the latest questions first, in pages. `next` is absent on
/// the last page; pass it as `after` for the next one. A page may have no questions although it has
/// a next one.
///
/// | parameter | |
/// |---|---|
/// | `agent` | only the questions of this [server](ConversationKey::app) |
/// | `role` | only those for this role of the sender |
/// | `limit` | the number of waiting conversations to look at, at most 100 |
/// | `after` | the `next` of the page before |
///
/// A question has the `key` of its conversation (`app`, `user`, `id`), its `id`,
/// `role`, `reason`, `message`, `payload` and `responseSchema`, as the
/// [interrupt](tower_agent::Interrupt) has them, and `askedAt` and `expiresAt` in milliseconds
/// since 1970. The payload of an approval has the exact arguments of its call.
///
/// # An answer
///
/// `{"key": {..}, "id": "..", "answer": ..}`, with the `key` and the `id` of the question. The
/// answer to an approval is `{"approved": true}`, with `editedArgs` where edits are allowed, or
/// `{"approved": false}`, with a `reason`. The response comes when the answer is accepted, and has
/// no content; the agent goes on in a task of the Tokio runtime, which does not end with the
/// request.
///
/// # Errors
///
/// `{"error": {"code": "..", "message": ".."}}`, before anything has run:
///
/// | status | code | |
/// |---|---|---|
/// | 400 | `invalid` | the body or a parameter is not what is described here, or the answer does not fit the question, which stays open |
/// | 403 | `forbidden` | the sender has no role, or not that of the question, or [may not](tower_agent::Interrupt::except) answer it |
/// | 404 | `not_open` | the question was answered, abandoned, has changed or was never asked |
/// | 405 | `invalid` | the method is neither `GET` nor `POST` |
/// | 409 | `busy` | another run is active in the conversation; with `Retry-After` |
/// | 409 | `expired` | the question was not answered [in time](tower_agent::Interrupt::with_expiry) |
/// | 413, 415 | `invalid` | the body has more than 1 MiB, or is not `application/json` |
/// | 503 | `store`, `overloaded` | the store failed, or the server has too many runs |
pub struct InboxService<I> {
    inbox: Arc<I>,
    roles: RolesOf,
}

type RolesOf = Arc<dyn Fn(&Parts) -> Roles + Send + Sync>;

/// The body of an answer.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    key: Key,
    id: String,
    #[serde(deserialize_with = "Resolution::deserialize_payload")]
    answer: Value,
}

/// The key of a conversation as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    app: Arc<str>,
    // Required: the conversation without a user is another one.
    user: Arc<str>,
    id: Arc<str>,
}

impl From<ConversationKey> for Key {
    fn from(key: ConversationKey) -> Self {
        Self {
            app: key.app,
            user: key.user,
            id: key.id,
        }
    }
}

impl From<Key> for ConversationKey {
    fn from(key: Key) -> Self {
        Self::new(key.app, key.user, key.id)
    }
}

impl<I: Inbox> InboxService<I> {
    /// Creates the service. The function returns the roles of the sender of a request, for example
    /// from what an authentication layer has put into the extensions; a sender without any is
    /// refused.
    pub fn new(inbox: I, roles: impl Fn(&Parts) -> Roles + Send + Sync + 'static) -> Self {
        Self {
            inbox: Arc::new(inbox),
            roles: Arc::new(roles),
        }
    }

    async fn respond<B>(self, request: Request<B>) -> Result<Response<Full<Bytes>>, Failure>
    where
        B: http_body::Body<Error: Into<BoxError>> + Send,
        B::Data: Send,
    {
        let (parts, body) = request.into_parts();
        let roles = (self.roles)(&parts);
        if roles.is_empty() {
            let why = "the sender has no role whose questions could be answered here";
            return Err(Failure::new(
                StatusCode::FORBIDDEN,
                RefusalKind::Forbidden,
                why,
            ));
        }
        match parts.method {
            Method::GET => self.list(&parts, &roles).await,
            Method::POST => self.answer(&parts.headers, body, roles).await,
            _ => {
                let status = StatusCode::METHOD_NOT_ALLOWED;
                Err(Failure::invalid(
                    status,
                    "use GET to list questions and POST to answer one",
                ))
            }
        }
    }

    async fn list(&self, parts: &Parts, roles: &Roles) -> Result<Response<Full<Bytes>>, Failure> {
        let mut query = ConversationQuery::new().limit(PAGE);
        let mut roles = roles.clone();
        let parameters = parts.uri.query().unwrap_or_default();
        for (name, value) in form_urlencoded::parse(parameters.as_bytes()) {
            match &*name {
                "agent" => query = query.app(&*value),
                "role" => roles = roles.only(&value),
                "limit" => {
                    let limit = value.parse::<u32>().map_err(|_| parameter("limit"))?;
                    query = query.limit(limit.clamp(1, PAGE));
                }
                // The first page, as that of a program which has no cursor yet.
                "after" if value.is_empty() => {}
                "after" => {
                    let after = read_cursor(&value).ok_or_else(|| parameter("after"))?;
                    query = query.after(&after);
                }
                _ => {}
            }
        }
        let page = self.inbox.questions(&query, &roles).await?;
        let questions: Vec<_> = page.questions.into_iter().map(shown).collect();
        let mut list = json!({ "questions": questions });
        if let Some(after) = page.next.and_then(|next| next.after) {
            list["next"] = cursor(after).into();
        }
        Ok(response(StatusCode::OK, &list))
    }

    async fn answer<B>(
        &self,
        headers: &HeaderMap,
        body: B,
        roles: Roles,
    ) -> Result<Response<Full<Bytes>>, Failure>
    where
        B: http_body::Body<Error: Into<BoxError>> + Send,
        B::Data: Send,
    {
        // Also keeps out forms of other sites, which a browser posts without asking first.
        if !is_json(headers) {
            let why = "the body must be JSON, with the content type `application/json`";
            return Err(Failure::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
        }
        let body = read(body).await?;
        let Answer { key, id, answer } = serde_json::from_slice(&body)
            .map_err(|error| Failure::invalid(StatusCode::BAD_REQUEST, error.to_string()))?;
        let resolution = Resolution::resolved(id, answer);
        let run = self.inbox.answer(key.into(), roles, resolution).await?;
        // The agent goes on, whether the one who has answered stays or not.
        tokio::spawn(run);
        let mut accepted = Response::new(Full::default());
        *accepted.status_mut() = StatusCode::ACCEPTED;
        Ok(accepted)
    }
}

async fn read<B>(body: B) -> Result<Bytes, Failure>
where
    B: http_body::Body<Error: Into<BoxError>>,
{
    let body = Limited::new(body, BODY).collect();
    let Ok(body) = tokio::time::timeout(BODY_TIME, body).await else {
        let why = format!("the body did not arrive within {BODY_TIME:?}");
        return Err(Failure::invalid(StatusCode::REQUEST_TIMEOUT, why));
    };
    let body = body.map_err(|error| {
        let status = if error.is::<LengthLimitError>() {
            StatusCode::PAYLOAD_TOO_LARGE
        } else {
            StatusCode::BAD_REQUEST
        };
        Failure::invalid(status, format!("the body did not arrive: {error}"))
    })?;
    Ok(body.to_bytes())
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next());
    essence.is_some_and(|essence| essence.trim().eq_ignore_ascii_case("application/json"))
}

fn parameter(name: &str) -> Failure {
    let why = format!("the parameter `{name}` cannot be read");
    Failure::invalid(StatusCode::BAD_REQUEST, why)
}

/// Returns a question as JSON.
fn shown(question: Question) -> Value {
    let Question {
        key,
        id,
        asked_at,
        interrupt,
    } = question;
    let mut shown = json!({
        "key": Key::from(key),
        "id": id,
        "askedAt": millis(asked_at),
        "role": interrupt.answerer.role(),
        "reason": interrupt.reason,
        "payload": interrupt.payload,
        "responseSchema": interrupt.response_schema,
    });
    if let Some(message) = interrupt.message {
        shown["message"] = message.into();
    }
    if let Some(expiry) = interrupt.expiry {
        shown["expiresAt"] = millis(expiry.at).into();
    }
    shown
}

/// Returns the text from which a page goes on.
fn cursor(after: ConversationInfo) -> String {
    let position = (millis(after.updated_at), Key::from(after.key));
    URL_SAFE_NO_PAD.encode(json!(position).to_string())
}

/// Reads a cursor. A client may have made it up: it chooses where to begin, and shows nothing more.
fn read_cursor(cursor: &str) -> Option<ConversationInfo> {
    let position = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (updated_at, key): (i64, Key) = serde_json::from_slice(&position).ok()?;
    Some(ConversationInfo::new(key.into(), 0, time(updated_at)))
}

/// A request that is not answered, and the reason.
struct Failure {
    status: StatusCode,
    kind: RefusalKind,
    message: String,
    retry_after: Option<Duration>,
}

impl Failure {
    fn new(status: StatusCode, kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            status,
            kind,
            message: message.into(),
            retry_after: None,
        }
    }

    fn invalid(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, RefusalKind::Invalid, message)
    }

    fn into_response(self) -> Response<Full<Bytes>> {
        let error = json!({ "error": { "code": self.kind.code(), "message": self.message } });
        let mut response = response(self.status, &error);
        let headers = response.headers_mut();
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(ALLOW, HeaderValue::from_static("GET, POST"));
        }
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
        }
        response
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal.kind {
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::Forbidden => StatusCode::FORBIDDEN,
            RefusalKind::NotOpen => StatusCode::NOT_FOUND,
            RefusalKind::Expired | RefusalKind::Busy => StatusCode::CONFLICT,
            RefusalKind::Overloaded | RefusalKind::Store => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self {
            retry_after: refusal.retry_after,
            ..Self::new(status, refusal.kind, refusal.message)
        }
    }
}

fn response(status: StatusCode, json: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(json.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // A cache would show one approver's questions to another.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl<I: Inbox, B> Service<Request<B>> for InboxService<I>
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        // The service is always ready, so a clone of it is, too.
        let response = self.clone().respond(request);
        ResponseFuture(Box::pin(async move {
            response.await.unwrap_or_else(Failure::into_response)
        }))
    }
}

/// The response of an [`InboxService`].
pub struct ResponseFuture(BoxFuture<'static, Response<Full<Bytes>>>);

impl Future for ResponseFuture {
    type Output = Result<Response<Full<Bytes>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

impl<I> Clone for InboxService<I> {
    fn clone(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            roles: self.roles.clone(),
        }
    }
}

impl<I> fmt::Debug for InboxService<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxService").finish_non_exhaustive()
    }
}
