use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, StreamExt};
use tower::Service;

use super::body::Body;
use super::limits::Limits;
use super::read::read;
use super::reply::{self, Refusal, Wanted};
use crate::bounds::{self, check_id};
use crate::client_tool::OwnTools;
use crate::failure::FailureMessage;
use crate::input::RunData;
use crate::permit::{Permit, Runs};
use crate::run::{AgUiRun, Served};
use crate::show::Show;
use crate::shown;
use crate::thread_input::{take_sealed, thread_input};
use crate::translate::TranslateRequest;
use crate::wire::{Event, InputError, InputErrorKind, RunAgentInput};
use tower_agent::agent::{AgentRequest, BoxAgent};
use tower_agent::callback::LayerInner;
use tower_agent::context::State;
use tower_agent::error::{BoxError, Resolution};
use tower_agent_conversations::{
    Begun, ConversationKey, ConversationQuery, QuestionPage, Roles, Threads,
};

/// The number of threads with expired questions whose agents go on at once.
const EXPIRED_AT_ONCE: usize = 8;

/// An agent as an HTTP service that speaks AG-UI.
///
/// Tools, callbacks of every kind, layers and sub-agents read by type whom the run is for, with
/// [`RunContext::extension`](tower_agent::RunContext::extension):
///
/// | type | contents |
/// |---|---|
/// | [`ConversationKey`] | the [principal](super::AgUiBuilder::principal), if there is one, and the thread |
/// | [`http::request::Parts`] | the head of the HTTP request, with the extensions that outer layers have added; only for a run over HTTP |
/// | `Arc<`[`RunAgentInput`]`>` | the client's input, without its state, which is [`RunContext::state`](tower_agent::RunContext::state): the word of the client alone |
/// | [`ConversationId`](tower_agent::context::ConversationId) | the id of the thread, for telemetry |
///
/// The run's own id is not the client's, which may be anything. The run is in the `tracing` span in
/// which its request was received, until its stream ends, whatever layers do. Cloning is O(1).
///
/// ```
/// use http_body_util::{BodyExt, Full};
/// use tower::ServiceExt;
/// use tower_agent_agui::AgUi;
/// use tower_agent::{Agent, BoxError};
/// use tower_agent_test::{ScriptedModel, Turn};
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
    pub(super) own_tools: OwnTools,
    /// `None` if there are no callbacks or layers around the translation.
    pub(super) stack: Option<LayerInner<TranslateRequest>>,
    pub(super) limits: Limits,
    pub(super) runs: Runs,
    pub(super) threads: Threads,
    pub(super) name: Arc<str>,
    pub(super) principal: Option<PrincipalOf>,
    pub(super) failure_message: FailureMessage,
    pub(super) roles: Option<RolesOf>,
}

/// Returns the roles of the sender of a request.
pub(super) type RolesOf = Arc<dyn Fn(&http::request::Parts) -> Roles + Send + Sync>;

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
    /// same name or one with that of a tool of the agent, two answers to one interrupt. Fails, too,
    /// if there are [too many runs](super::AgUiBuilder::max_runs).
    pub async fn run(&self, input: RunAgentInput) -> Result<AgUiRun, InputError> {
        let nobody = Arc::default();
        let permit = self.runs.permit(&nobody)?;
        self.start(input, nobody, Roles::default(), None, permit)
            .await
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
        self.run_with_roles(principal, Roles::default(), input)
            .await
    }

    /// Runs the agent for a client that is connected in another way, for this principal, who has
    /// these [roles](super::AgUiBuilder::roles).
    ///
    /// # Errors
    ///
    /// Fails as [`run`](Self::run) does.
    pub async fn run_with_roles(
        &self,
        principal: impl Into<Arc<str>>,
        roles: Roles,
        input: RunAgentInput,
    ) -> Result<AgUiRun, InputError> {
        let principal = principal.into();
        if principal.is_empty() {
            // It would have the threads of those without one.
            return Err(InputError::new(".", "the principal is empty"));
        }
        let permit = self.runs.permit(&principal)?;
        self.start(input, principal, roles, None, permit).await
    }

    /// Returns the open questions of this server's threads that somebody with these roles can
    /// [answer](Self::answer), the latest first: those of the threads on one page of a list.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the server is
    /// [stateless](super::AgUiBuilder::stateless).
    pub async fn questions(
        &self,
        query: &ConversationQuery,
        roles: &Roles,
    ) -> Result<QuestionPage, InputError> {
        let query = query.clone().app(self.name.clone());
        Ok(self.threads.questions(&query, roles).await?)
    }

    /// Answers a question in place of its thread's client, as an approver with these roles: the
    /// agent goes on while the returned run is read, and its client need not be connected. The
    /// client receives what it has missed with its next run.
    ///
    /// The tools of the client, its context and its forwarded properties are not available.
    ///
    /// # Errors
    ///
    /// Fails before anything has run if the question is not open, has
    /// [expired](tower_agent::Interrupt::with_expiry), is not [for one of the
    /// roles](tower_agent::Interrupt::for_role) or not of this server, if another run is active in
    /// the thread, or the server is [stateless](super::AgUiBuilder::stateless).
    pub async fn answer(
        &self,
        key: ConversationKey,
        roles: Roles,
        answer: Resolution,
    ) -> Result<AgUiRun, InputError> {
        if key.app != self.name {
            // Its agent is another one, with other guards.
            let why = "the thread is of another server";
            return Err(InputError::new("threadId", why).of(InputErrorKind::NotOpen));
        }
        let permit = self.runs.permit(&key.user)?;
        let begin = self.threads.answer(key.clone(), roles.clone(), answer);
        let begin = async { begin.await.map_err(InputError::from) };
        let begun = self.runs.unless_stopped(begin).await?;
        Ok(self.go_on(key, roles, begun, permit))
    }

    /// Answers the questions of this server's threads that have
    /// [expired](tower_agent::Interrupt::with_expiry) with the outcomes that they name, and lets
    /// the agent go on until those runs end, a few at once. Returns the number of these threads.
    /// Call it periodically: otherwise the agent goes on with the next run of the client.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tower_agent_agui::AgUi;
    ///
    /// async fn deny_in_time(server: AgUi) {
    ///     let mut minutes = tokio::time::interval(Duration::from_secs(60));
    ///     loop {
    ///         minutes.tick().await;
    ///         if let Err(error) = server.answer_expired().await {
    ///             eprintln!("failed to answer expired questions: {error}");
    ///         }
    ///     }
    /// }
    /// # drop(deny_in_time);
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the server is
    /// [stateless](super::AgUiBuilder::stateless). A thread that cannot go on now, as another run
    /// is active in it, is left to the next call.
    pub async fn answer_expired(&self) -> Result<usize, InputError> {
        let mut query = Some(ConversationQuery::new().app(self.name.clone()));
        let mut expired = Vec::new();
        while let Some(page) = query {
            let (keys, next) = self.threads.expired(&page).await?;
            expired.extend(keys);
            query = next;
        }
        let runs = expired.into_iter().map(|key| self.run_expired(key));
        let went_on = stream::iter(runs).buffer_unordered(EXPIRED_AT_ONCE);
        Ok(went_on.filter(|went_on| ready(*went_on)).count().await)
    }

    /// Runs the agent in a thread with expired questions. Returns whether it went on.
    async fn run_expired(&self, key: ConversationKey) -> bool {
        let Ok(permit) = self.runs.permit(&key.user) else {
            return false;
        };
        let begin = self.threads.answer_expired(key.clone());
        let begin = async { begin.await.map_err(InputError::from) };
        let begun = match self.runs.unless_stopped(begin).await {
            Ok(begun) => begun,
            Err(error) => {
                tracing::debug!(%error, "a thread with an expired question does not go on now");
                return false;
            }
        };
        let run = self.go_on(key, Roles::default(), begun, permit);
        // Its client receives the events with its next run.
        run.for_each(|_| ready(())).await;
        true
    }

    /// Runs the agent in a thread whose client is not connected.
    fn go_on(
        &self,
        key: ConversationKey,
        roles: Roles,
        mut begun: Begun,
        permit: Permit,
    ) -> AgUiRun {
        let input = RunAgentInput::new(key.id.clone(), begun.name.clone(), []);
        let input = Arc::new(input);
        begun.request = with_thread(begun.request, key, input.clone());
        AgUiRun::new(self.served(), begun, input, roles, permit)
    }

    /// Shuts the server down: no new run begins, those that are active have so long to end, the
    /// others are stopped, and everything is saved.
    ///
    /// Requests are answered with 503 and `Retry-After` from now on. A run that is stopped ends
    /// with a `RUN_ERROR` of the code `shutting_down`; its progress is saved and its thread is
    /// free, so that the client goes on at once with another process: with the same request again,
    /// as after a connection that broke. That a client does not read does not matter. Runs that
    /// wait for an answer have ended already, and their questions stay open.
    ///
    /// Returns when no run is active and everything is saved, also of runs whose client had
    /// disconnected: from then on the process may exit. That takes as long as the store does,
    /// longer than the grace. A second call, with a shorter grace, ends the runs earlier. Clones of
    /// the server shut down with it. Dropping the future lets active runs go on.
    ///
    /// axum waits for the responses that are open, so let it stop listening afterwards:
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use tower_agent_agui::AgUi;
    ///
    /// # async fn serve(server: AgUi, listener: tokio::net::TcpListener) -> std::io::Result<()> {
    /// # async fn terminated() {}
    /// let app = axum::Router::new().route_service("/agent", server.clone());
    /// axum::serve(listener, app)
    ///     .with_graceful_shutdown(async move {
    ///         terminated().await;
    ///         server.shutdown(Duration::from_secs(20)).await;
    ///     })
    ///     .await
    /// # }
    /// ```
    pub async fn shutdown(&self, grace: Duration) {
        self.runs.shut_down(grace).await;
        self.threads.finish().await;
    }

    /// Returns the events that show a stored thread to its user, on another device or after a
    /// reload; `None` if it is not known, or not of this server.
    ///
    /// They are those of a run that does nothing: its state, its messages and, for those who may
    /// answer them, its open interrupts. The messages are in the form in which the client has them,
    /// with the same ids, and the callbacks around the translation decide about the events as about
    /// those of any run. A [`GET`](super) request receives them.
    ///
    /// ```
    /// use tower_agent_agui::AgUi;
    /// use tower_agent_agui::conversations::{ConversationKey, Roles};
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let agent = Agent::builder(ScriptedModel::new([])).build()?;
    /// let server = AgUi::builder(agent).name("shop").build();
    /// let key = ConversationKey::new("shop", "ada", "thread 1");
    /// assert!(server.show(key, Roles::default()).await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read, or the server is
    /// [stateless](super::AgUiBuilder::stateless).
    pub async fn show(
        &self,
        key: ConversationKey,
        roles: Roles,
    ) -> Result<Option<Vec<Event>>, InputError> {
        self.show_to(key, roles, None).await
    }

    async fn show_to(
        &self,
        key: ConversationKey,
        roles: Roles,
        parts: Option<http::request::Parts>,
    ) -> Result<Option<Vec<Event>>, InputError> {
        if key.app != self.name {
            return Ok(None);
        }
        let Some(thread) = self.threads.show(&key).await? else {
            return Ok(None);
        };
        let mut messages = shown::messages(thread.messages);
        shown::mark(&mut messages, thread.reader);
        let input = RunAgentInput::new(key.id.clone(), thread.run_id, messages);
        let request = AgentRequest::default().with_state(State::from(thread.state));
        let mut request = with_thread(request, key, Arc::new(input.clone()));
        if let Some(parts) = parts {
            request = request.with_extension(parts);
        }
        let show = Show {
            input,
            request,
            interrupts: thread.interrupts.into(),
            interrupt_ids: thread.interrupt_ids,
            roles,
            stack: self.stack.clone(),
            failure_message: self.failure_message.clone(),
        };
        Ok(Some(show.events().await))
    }

    /// Returns what a run takes from the server.
    fn served(&self) -> Served {
        Served {
            agent: self.agent.clone(),
            stack: self.stack.clone(),
            failure_message: self.failure_message.clone(),
            time: self.limits.run_time,
        }
    }

    async fn start(
        &self,
        mut input: RunAgentInput,
        user: Arc<str>,
        roles: Roles,
        parts: Option<http::request::Parts>,
        permit: Permit,
    ) -> Result<AgUiRun, InputError> {
        // Read before the thread is claimed: a rejected input must not keep others out of it.
        let data = RunData::read(&mut input, &self.own_tools)?;
        let key = ConversationKey::new(self.name.clone(), user, input.thread_id.clone());
        let sealed = take_sealed(&mut input, &self.threads);
        let sent = thread_input(&input, roles.clone(), sealed);
        let begin = self.threads.begin(key.clone(), sent);
        let mut begun = self.runs.unless_stopped(begin).await?;
        let input = Arc::new(input);
        let mut request = with_thread(data.add_to(begun.request), key, input.clone());
        if let Some(parts) = parts {
            request = request.with_extension(parts);
        }
        begun.request = request;
        Ok(AgUiRun::new(self.served(), begun, input, roles, permit))
    }

    async fn respond<B>(self, request: http::Request<B>) -> Result<http::Response<Body>, Refusal>
    where
        B: http_body::Body<Error: Into<BoxError>> + Send,
        B::Data: Send,
    {
        let (parts, body) = request.into_parts();
        let wanted = reply::check(&parts, self.threads.has_store())?;
        let user = match &self.principal {
            None => Arc::default(),
            // Without a name it would have the threads of those without one.
            Some(of) => of(&parts)
                .filter(|user| !user.is_empty())
                .ok_or_else(reply::unknown)?,
        };
        let roles = self.roles.as_ref().map(|of| of(&parts));
        let roles = roles.unwrap_or_default();
        // Bodies that are being read or sent take memory, too.
        let permit = self.runs.permit(&user)?;
        if let Wanted::Thread(thread) = wanted {
            check_id("threadId", &thread, bounds::ID)?;
            let key = ConversationKey::new(self.name.clone(), user, thread);
            let events = self.show_to(key, roles, Some(parts));
            let events = self.runs.unless_stopped(events).await?;
            let events = events.ok_or_else(reply::no_thread)?;
            return Ok(reply::thread(Body::thread(
                &events,
                permit,
                self.limits.read_time,
            )));
        }
        // The body comes last: an unknown sender cannot make the server read it.
        let body = read(body, self.limits);
        let body = self.runs.unless_stopped(body).await?;
        let input = RunAgentInput::from_json(&body)?;
        // Not kept while the thread is loaded.
        drop(body);
        let run = self.start(input, user, roles, Some(parts), permit).await?;
        Ok(reply::events(Body::events(run, self.limits)))
    }
}

/// Adds the thread to a run, for the application's code: the agent does not read it.
fn with_thread(
    request: AgentRequest,
    key: ConversationKey,
    input: Arc<RunAgentInput>,
) -> AgentRequest {
    key.request(request).with_extension(input)
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
