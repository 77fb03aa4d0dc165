//! Gives the calls of a run to one of several models, chosen by the first request.
//!
//! ```text
//! Router: Service<ModelRequest, Response = ModelResponse> + Clone
//! ```
//!
//! A function of yours reads the first request of an agent in a run and names a route. The later
//! calls of that agent in the run take the same one, also when the run goes on after a pause, in
//! this process or in another: the provider's prompt cache stays warm, and reasoning that only one
//! provider can read goes back to it. Each sub-agent has a route of its own.
//!
//! ```
//! use tower_agent::{Agent, BoxError, ModelRequest};
//! use tower_agent_middleware::router::Router;
//! use tower_agent_test::{ScriptedModel, Turn};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! # let small = ScriptedModel::always(Turn::from_text("Small."));
//! # let large = ScriptedModel::always(Turn::from_text("Large."));
//! let router = Router::new(|request: &ModelRequest| {
//!     let is_long = request.messages().iter().any(|message| message.text().len() > 1_000);
//!     Ok(if is_long { "large" } else { "small" })
//! })
//! .route("small", small)
//! .route("large", large);
//!
//! let agent = Agent::builder(router).build()?;
//! assert_eq!(agent.run("Hello.").await?.text(), "Small.");
//! # assert_eq!(agent.run("Hello. ".repeat(200)).await?.text(), "Large.");
//! # Ok(())
//! # }
//! ```
//!
//! To keep a route for a whole conversation, choose it by what stays the same there, such as its
//! [id](tower_agent::context::ConversationId).
//!
//! # Where to put it
//!
//! In the place of a model. Each route can be a [pool](crate::pool) or a
//! [fallback](crate::fallback) of its own.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::json;
use tower::Service;
use tower::util::{Oneshot, ServiceExt};

use crate::admission::Decided;
use crate::opaque_future::opaque_future;
use tower_agent::RunContext;
use tower_agent::call::Request;
use tower_agent::error::{CallSite, Error, ErrorKind, Result};
use tower_agent::model::{BoxModel, ModelRequest, ModelResponse, ModelService};

/// Gives the calls of a run to the model of a route.
///
/// It is always ready: a call waits for the model that it is given to. See the [module](self).
#[derive(Clone)]
pub struct Router {
    choose: Arc<Choose>,
    routes: Arc<Routes>,
}

/// Names the route of a request.
type Choose = dyn Fn(&ModelRequest) -> Result<Arc<str>> + Send + Sync;

type Routes = Vec<(Arc<str>, BoxModel)>;

/// The reason why a call was not made: the source of the error of a [`Router`] whose function named
/// a route that it does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the router has no route `{route}`; it has {known:?}")]
#[non_exhaustive]
pub struct UnknownRoute {
    /// The route that was named.
    pub route: Arc<str>,
    /// The routes that there are.
    pub known: Vec<Arc<str>>,
}

impl Router {
    /// Creates a router without routes. `choose` names the route of the first request of an agent
    /// in a run; its error fails the call.
    #[must_use]
    pub fn new<K>(choose: impl Fn(&ModelRequest) -> Result<K> + Send + Sync + 'static) -> Self
    where
        K: Into<Arc<str>>,
    {
        Self {
            choose: Arc::new(move |request| choose(request).map(Into::into)),
            routes: Arc::default(),
        }
    }

    /// Adds a route; one of the same name is replaced.
    #[must_use]
    pub fn route(mut self, name: impl Into<Arc<str>>, model: impl ModelService) -> Self {
        let name = name.into();
        let routes = Arc::make_mut(&mut self.routes);
        routes.retain(|(other, _)| *other != name);
        routes.push((name, BoxModel::new(model)));
        self
    }

    /// Returns the model for a request.
    fn find(&self, request: &ModelRequest) -> Result<&BoxModel> {
        if let Some(model) = self.chosen_before(request.context()) {
            return Ok(model);
        }
        let route = (self.choose)(request)?;
        let model = self.get(&route).ok_or_else(|| {
            let known = self.routes.iter().map(|(name, _)| name.clone());
            Error::from(UnknownRoute {
                route: route.clone(),
                known: known.collect(),
            })
        })?;
        let run = request.context();
        let choice = json!({ "run": run.run_id(), "route": route });
        run.private_state().set(self.key(run), choice);
        tracing::debug!(run_id = run.run_id(), call = %CallSite::of(request), %route, "route chosen");
        Ok(model)
    }

    /// Returns the model of the route that the run has taken.
    fn chosen_before(&self, run: &RunContext) -> Option<&BoxModel> {
        let private = run.private_state();
        let route = private.read(&self.key(run), |choice| {
            let choice = choice?;
            // The state is that of the conversation, which goes on after the run.
            let is_same = choice["run"] == run.run_id() || run.is_continuation();
            let route = choice["route"].as_str().filter(|_| is_same);
            route.map(str::to_owned)
        })?;
        self.get(&route)
    }

    fn get(&self, route: &str) -> Option<&BoxModel> {
        let mut routes = self.routes.iter();
        let found = routes.find(|(name, _)| **name == *route);
        found.map(|(_, model)| model)
    }

    /// Returns the key of the choice in the private state. A router in the route of another has its
    /// own, and so has a later version of the program with other routes.
    fn key(&self, run: &RunContext) -> String {
        let mut key = format!("tower_agent_middleware::router/{}", run.path());
        for (name, _) in &*self.routes {
            key.push(' ');
            key.push_str(name);
        }
        key
    }
}

impl From<UnknownRoute> for Error {
    fn from(unknown: UnknownRoute) -> Self {
        Self::new(ErrorKind::InvalidRequest, format!("not called: {unknown}")).with_source(unknown)
    }
}

impl Service<ModelRequest> for Router {
    type Response = ModelResponse;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ModelRequest) -> Self::Future {
        let call = match self.find(&request) {
            Ok(model) => Ok((model.clone().oneshot(request), ())),
            Err(error) => Err(error.with_call(CallSite::of(&request))),
        };
        ResponseFuture {
            inner: Decided::new(call),
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

/// Futures of the service in this module.
pub mod future {
    pub use super::ResponseFuture;
}

opaque_future! {
    /// The future of a [`Router`].
    pub struct ResponseFuture(Decided<Oneshot<BoxModel, ModelRequest>, ()>) -> Result<ModelResponse>
}
