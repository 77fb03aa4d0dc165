//! The console over HTTP.

mod access;
mod api;
mod body;
#[cfg(feature = "inbox")]
mod inbox;
mod live;
mod page;
mod reply;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Method, Request, Response};
use percent_encoding::percent_decode_str;
use tower_agent::BoxError;
use tower_agent::serve::Places;
use tower_service::Service;

pub(crate) use self::access::Access;
pub use self::body::Body;
#[cfg(feature = "inbox")]
pub(crate) use self::inbox::{InboxOf, inbox_of};
use self::reply::Refusal;
use crate::console::Console;
use crate::operator::Operator;

/// The number of live views at once, and of one operator.
const LIVE: (usize, usize) = (256, 16);

/// The console as an HTTP service; created by [`Console::into_service`]. Cloning is O(1).
///
/// It answers to `GET` on `/`, its files and `api/..`, below the path where it is mounted, and to
/// `POST` on `api/inbox`.
#[derive(Clone)]
pub struct ConsoleService {
    console: Console,
    access: Access,
    live: Places,
}

/// The response of a [`ConsoleService`].
pub struct ResponseFuture(BoxFuture<'static, Response<Body>>);

impl ConsoleService {
    pub(crate) fn new(console: Console, access: Access) -> Self {
        Self {
            console,
            access,
            live: Places::new(LIVE.0, LIVE.1),
        }
    }

    async fn respond<B>(self, request: Request<B>) -> Result<Response<Body>, Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
        B::Data: Send,
    {
        let (parts, body) = request.into_parts();
        let operator = self.access.operator(&parts)?;
        let path = parts.uri.path().trim_matches('/');
        let path = path
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8());
        let path: Vec<_> = path
            .collect::<Result<_, _>>()
            .map_err(|_| Refusal::not_found())?;
        let path: Vec<&str> = path.iter().map(|part| &**part).collect();

        #[cfg(feature = "inbox")]
        if path == ["api", "inbox"] {
            return self.inbox(operator, parts, body).await;
        }
        drop(body);
        // The server leaves out the body of a response to `HEAD`.
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(Refusal::not_allowed());
        }
        let query = parts.uri.query().unwrap_or_default();
        let api = api::Api {
            console: &self.console.inner,
            operator: &operator,
        };
        match path[..] {
            ["api", "me"] => Ok(self.me(&operator)),
            ["api", "runs"] => api.runs(query),
            ["api", "runs", id] => api.run(id, query),
            ["api", "runs", id, "content", entry] => api.content(id, entry),
            ["api", "agents"] => Ok(api.agents()),
            #[cfg(feature = "inbox")]
            ["api", "audit"] => Ok(api.audit()),
            ["api", "live"] => self.live(operator, &parts, query),
            [file] => page::file(file),
            _ => Err(Refusal::not_found()),
        }
    }

    /// Returns who asks, and what they may do.
    fn me(&self, operator: &Operator) -> Response<Body> {
        #[cfg(feature = "inbox")]
        let has_inbox = self.console.inbox.is_some();
        #[cfg(not(feature = "inbox"))]
        let has_inbox = false;
        reply::json(&serde_json::json!({
            "name": operator.name(),
            "seesUsers": operator.sees_users,
            "seesContent": operator.sees_content,
            "mayAnswer": has_inbox && operator.may_answer(),
        }))
    }
}

impl<B> Service<Request<B>> for ConsoleService
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture {
        // The service is always ready, so a clone of it is, too.
        let response = self.clone().respond(request);
        ResponseFuture(Box::pin(async move {
            let response = response.await;
            reply::guarded(response.unwrap_or_else(Refusal::into_response))
        }))
    }
}

impl Future for ResponseFuture {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map(Ok)
    }
}

impl fmt::Debug for ConsoleService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleService")
            .field("console", &self.console)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
