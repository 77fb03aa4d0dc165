//! The console over HTTP.

mod access;
mod api;
mod body;
mod data;
mod durable;
#[cfg(feature = "inbox")]
mod fork;
#[cfg(feature = "inbox")]
mod inbox;
mod input;
mod live;
mod page;
#[cfg(feature = "recording")]
mod recording;
mod reply;

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{Method, Request, Response};
use percent_encoding::percent_decode_str;
use tower_agent::BoxError;
use tower_agent::serve::Places;
use tower_service::Service;

use self::access::Access;
pub use self::body::ResponseBody;
use self::reply::Refusal;
use crate::console::Console;
use crate::operator::Operator;

/// The number of live views at once, and of one operator.
const LIVE: (usize, usize) = (256, 16);

/// The console as an HTTP service; created by [`Console::into_service`]. Cloning is O(1).
///
/// It answers to `GET` on `/`, its files and `api/..`, below the path where it is mounted, and to
/// `POST` on `api/inbox`, `api/export`, `api/delete` and where runs are forked.
#[derive(Clone)]
pub struct ConsoleService {
    console: Console,
    access: Access,
    live: Places,
}

/// The response of a [`ConsoleService`].
pub struct ResponseFuture(BoxFuture<'static, Response<ResponseBody>>);

impl Console {
    /// Returns the console as an HTTP service. The function says who the sender of a request is,
    /// for example from what a layer that authenticates has put into the extensions; a sender who
    /// is nobody gets no more than that.
    ///
    /// Mount it under any path, which it must not see itself: `nest_service` of axum strips it, and
    /// so may a proxy.
    ///
    /// ```
    /// use axum::Router;
    /// use tower_agent_console::{Console, Operator};
    ///
    /// /// Inserted by a layer that has verified a session.
    /// #[derive(Clone)]
    /// struct Staff(String);
    ///
    /// let service = Console::new().into_service(|parts| {
    ///     let staff = parts.extensions.get::<Staff>()?;
    ///     Some(Operator::new(staff.0.clone()).sees_content())
    /// });
    /// let app: Router = Router::new().nest_service("/console", service);
    /// # drop(app);
    /// ```
    pub fn into_service(
        self,
        operator_of: impl Fn(&Parts) -> Option<Operator> + Send + Sync + 'static,
    ) -> ConsoleService {
        ConsoleService::new(self, Access::By(Arc::new(operator_of)))
    }

    /// Returns the console as an HTTP service for a developer's own machine, where everybody sees
    /// everything: it answers only to a `Host` that names the loopback, and only to its own page.
    ///
    /// A program can send any `Host`. So the server has to listen on the loopback alone, and no
    /// proxy may stand before it: a request that has passed one is refused.
    pub fn into_local_service(self, developer: Operator) -> ConsoleService {
        ConsoleService::new(self, Access::Local(developer))
    }
}

impl ConsoleService {
    fn new(console: Console, access: Access) -> Self {
        Self {
            console,
            access,
            live: Places::new(LIVE.0, LIVE.1),
        }
    }

    async fn respond<B>(self, request: Request<B>) -> Result<Response<ResponseBody>, Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
        B::Data: Send,
    {
        let (parts, body) = request.into_parts();
        let operator = self.access.operator(&parts)?;
        self.console.inner.start();
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
            let inbox = self.console.inbox;
            let console = &self.console.inner;
            return inbox::inbox(inbox, console, operator, parts, body).await;
        }
        #[cfg(feature = "inbox")]
        if let ["api", "runs", id, "fork", step] = path[..]
            && parts.method == Method::POST
        {
            return fork::begin(&self.console, &operator, id, step, &parts, body).await;
        }
        let action = match path[..] {
            ["api", "export"] => Some(data::Action::Export),
            ["api", "delete"] => Some(data::Action::Delete),
            _ => None,
        };
        if let (Some(action), &Method::POST) = (action, &parts.method) {
            return data::act(&self.console, &operator, action, &parts, body).await;
        }
        if path == ["api", "durable", "resume"] && parts.method == Method::POST {
            let api = api::Api {
                console: &self.console.inner,
                operator: &operator,
            };
            return api.resume(&parts, body).await;
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
            ["api", "runs"] => api.runs(query).await,
            ["api", "runs", id] => api.run(id, query).await,
            ["api", "runs", id, "content", entry] => api.content(id, entry).await,
            ["api", "agents"] => Ok(api.agents()),
            #[cfg(feature = "inbox")]
            ["api", "runs", id, "fork", step] => {
                fork::step(&self.console, &operator, id, step).await
            }
            #[cfg(feature = "recording")]
            ["api", "runs", id, "recording"] => {
                recording::recording(&self.console, &operator, id).await
            }
            ["api", "durable"] => api.durable(query).await,
            ["api", "limits"] => Ok(api.limits().await),
            ["api", "audit"] => api.audit(query).await,
            ["api", "live"] => {
                let console = self.console.inner.clone();
                live::live(console, &self.live, operator, &parts, query)
            }
            [file] => page::file(file),
            _ => Err(Refusal::not_found()),
        }
    }

    /// Returns who asks, and what they may do.
    fn me(&self, operator: &Operator) -> Response<ResponseBody> {
        #[cfg(feature = "inbox")]
        let may_fork = operator.may_fork();
        #[cfg(not(feature = "inbox"))]
        let may_fork = false;
        reply::json(&serde_json::json!({
            "name": operator.name(),
            "seesUsers": operator.sees_users,
            "seesContent": operator.sees_content,
            "managesData": operator.manages_data,
            "mayAnswer": operator.may_answer(),
            "mayFork": may_fork,
            "hasDurable": self.console.inner.durable.get().is_some(),
            "maySave": cfg!(feature = "recording") && operator.sees_content,
        }))
    }
}

impl<B> Service<Request<B>> for ConsoleService
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    type Response = Response<ResponseBody>;
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
    type Output = Result<Response<ResponseBody>, Infallible>;

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
