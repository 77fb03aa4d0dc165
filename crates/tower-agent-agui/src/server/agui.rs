use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::Service;

use super::body::Body;
use super::limits::Limits;
use super::read::read;
use super::reply::{self, Refusal};
use crate::input::RunData;
use crate::permit::{Permit, Runs};
use crate::run::AgUiRun;
use crate::thread_input::{take_sealed, thread_input};
use crate::translate::TranslateRequest;
use crate::wire::{InputError, RunAgentInput};
use tower_agent::agent::BoxAgent;
use tower_agent::callback::LayerInner;
use tower_agent::error::BoxError;
use tower_agent_threads::{ThreadKey, Threads};

/// An agent as an HTTP service that speaks AG-UI.
///
/// The agent's callbacks find the [`RunAgentInput`] in their
/// [extensions](tower_agent::AgentRequest::extensions), as an `Arc` and without its state, which is
/// [`RunContext::state`](tower_agent::RunContext::state), and the head of the HTTP
/// request, [`http::request::Parts`], with the extensions that outer layers have added. The run's own
/// id is not the client's, which may be anything. Cloning is O(1).
///
/// ```
/// use http_body_util::{BodyExt, Full};
/// use tower::ServiceExt;
/// use tower_agent_agui::AgUi;
/// use tower_agent::testing::{ScriptedModel, Turn};
/// use tower_agent::{Agent, BoxError};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("It rains.")])).build()?;
/// let server = AgUi::new(agent);
///
/// let input = r#"{
///     "threadId": "t1",
///     "runId": "r1",
///     "messages": [{ "id": "m1", "role": "user", "content": "How is the weather?" }]
/// }"#;
/// let request = http::Request::post("/agent")
///     .header("content-type", "application/json")
///     .body(Full::new(bytes::Bytes::from(input)))?;
/// let response = server.oneshot(request).await?;
/// assert_eq!(response.status(), 200);
/// let events = response.into_body().collect().await?.to_bytes();
/// assert!(events.starts_with(b"data: {\"type\":\"RUN_STARTED\""));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AgUi {
    pub(super) agent: BoxAgent,
    /// `None` if there are no callbacks or layers around the translation.
    pub(super) stack: Option<LayerInner<TranslateRequest>>,
    pub(super) limits: Limits,
    pub(super) runs: Runs,
    pub(super) threads: Threads,
    pub(super) name: Arc<str>,
    pub(super) principal: Option<PrincipalOf>,
}

/// Returns the principal of a request.
pub(super) type PrincipalOf = Arc<dyn Fn(&http::request::Parts) -> Option<Arc<str>> + Send + Sync>;

impl AgUi {
    /// Runs the agent for a client that is connected in another way, without a principal: see
    /// [`run_for`](Self::run_for).
    ///
    /// # Errors
    ///
    /// Fails before anything has run if the input is [rejected](crate#trust) or invalid: a message
    /// that no model can read, a state or a tool's schema that is not an object, two tools with the
    /// same name, two answers to one interrupt. Fails, too, if there are [too many
    /// runs](super::AgUiBuilder::max_runs).
    pub async fn run(&self, input: RunAgentInput) -> Result<AgUiRun, InputError> {
        let permit = self.runs.permit(None)?;
        self.start(input, None, None, permit).await
    }

    /// Runs the agent for a client that is connected in another way, for this principal.
    ///
    /// # Errors
    ///
    /// Fails as [`run`](Self::run) does.
    pub async fn run_for(
        &self,
        principal: impl Into<Arc<str>>,
        input: RunAgentInput,
    ) -> Result<AgUiRun, InputError> {
        let principal = principal.into();
        let permit = self.runs.permit(Some(&principal))?;
        self.start(input, Some(principal), None, permit).await
    }

    async fn start(
        &self,
        mut input: RunAgentInput,
        principal: Option<Arc<str>>,
        parts: Option<http::request::Parts>,
        permit: Permit,
    ) -> Result<AgUiRun, InputError> {
        // Read before the thread is claimed: a rejected input must not keep others out of it.
        let data = RunData::read(&mut input)?;
        let key = ThreadKey::new(self.name.clone(), input.thread_id.clone());
        let key = key.with_principal(principal);
        let sealed = take_sealed(&mut input, &self.threads);
        let sent = thread_input(&input, sealed);
        let mut begun = self.threads.begin(key, sent).await?;
        begun.request = data.add_to(begun.request);
        let input = Arc::new(input);
        // For the application's callbacks: the agent reads no forwarded properties itself.
        begun.request.extensions_mut().insert(input.clone());
        if let Some(parts) = parts {
            begun.request.extensions_mut().insert(parts);
        }
        Ok(AgUiRun::new(
            self.agent.clone(),
            begun,
            input,
            self.stack.clone(),
            permit,
            self.limits.run_time,
        ))
    }

    async fn respond<B>(self, request: http::Request<B>) -> Result<http::Response<Body>, Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>> + Send,
        B::Data: Send,
    {
        let (parts, body) = request.into_parts();
        reply::check(&parts)?;
        let principal = match &self.principal {
            None => None,
            Some(of) => Some(of(&parts).ok_or_else(reply::unknown)?),
        };
        // Bodies that are being read take memory, too.
        let permit = self.runs.permit(principal.as_ref())?;
        // The body comes last: an unknown sender cannot make the server read it.
        let body = read(body, self.limits).await?;
        let input = RunAgentInput::from_json(&body)?;
        // Not kept while the thread is loaded.
        drop(body);
        let run = self.start(input, principal, Some(parts), permit).await?;
        Ok(reply::events(Body::events(run, self.limits.keep_alive)))
    }
}

impl<B> Service<http::Request<B>> for AgUi
where
    B: http_body::Body<Error: Into<BoxError>> + Send + 'static,
    B::Data: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        // The service is always ready, so a clone of it is, too.
        let response = self.clone().respond(request);
        Box::pin(async move { Ok(response.await.unwrap_or_else(Refusal::into_response)) })
    }
}

impl fmt::Debug for AgUi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgUi")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
