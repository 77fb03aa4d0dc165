use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use tower::Service;

use super::explain::Explanation;
use super::named_tools::{KnownTools, ToolNames};
use super::outline::Outline;
use super::shell::Shell;
use super::stream::RunStream;
use crate::call::{BoxCallFuture, Origin, Request};
use crate::callback::{AfterAgentRespond, LayerInner, RunBundles, Tree};
use crate::context::{Entrant, RunContext};
use crate::conversation::Open;
use crate::error::{CallSite, Error, ErrorKind, Result};
use crate::on_drop::OnDrop;
use crate::run::{AgentRequest, AgentResponse, EndReason, Guards};
use crate::stream::{EventKind, Listeners};

/// An agent: the loop of model and tool calls inside the agent's own callbacks and layers.
///
/// It is a `Service<AgentRequest>` that is always ready and cheap to clone. Concurrent runs of one
/// agent do not wait for one another, unless a layer makes them. Tower layers wrap it like any
/// other service.
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use serde_json::json;
/// use tower::{ServiceBuilder, ServiceExt, timeout::TimeoutLayer};
/// use tower_agent::{Agent, AgentRequest, BoxError, Tool};
/// use tower_agent::callback::after_tool;
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Add {
///     a: f64,
///     b: f64,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let model = ScriptedModel::new([
///     Turn::tool("add", json!({ "a": 1, "b": 2 })),
///     Turn::from_text("1 + 2 = 3"),
/// ]);
/// let agent = Agent::builder(model)
///     .tool(Tool::function("add", "Adds two numbers.", |Add { a, b }| a + b))
///     .on_tool(after_tool(|request, response| println!("{}: {}", request.name(), response.value())))
///     .build()?;
///
/// let response = ServiceBuilder::new()
///     .layer(TimeoutLayer::new(std::time::Duration::from_secs(60)))
///     .service(agent)
///     .oneshot(AgentRequest::new("What is 1 + 2?"))
///     .await?;
/// assert_eq!(response.text(), "1 + 2 = 3");
/// assert_eq!(response.iterations(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent(Arc<AgentInner>);

pub(super) struct AgentInner {
    pub(super) max_iterations: u32,
    /// The tools that guards of this agent may name.
    pub(super) known_tools: KnownTools,
    pub(super) outline: Arc<Outline>,
    pub(super) explanation: Explanation,
    /// The agent gives one final answer.
    pub(super) gives_one_answer: bool,
    /// The key of the state that its text is stored under.
    pub(super) output_key: Option<Arc<str>>,
    pub(super) stack: LayerInner<AgentRequest>,
}

impl Agent {
    pub(super) fn new(composed: AgentInner) -> Self {
        Self(Arc::new(composed))
    }

    /// Calls the agent for a team, in which it has this name; returns its context and its future.
    pub(super) fn join(
        &self,
        name: &str,
        mut request: AgentRequest,
    ) -> (RunContext, ResponseFuture) {
        let checked = self.0.check(&request);
        // Entered now and not when the future is polled: the team needs the context beforehand.
        let open = self.0.enter(name, &mut request, true);
        let agent = self.0.clone();
        let context = request.context().clone();
        let future = boxed(|| async move {
            let _open = open;
            run(&agent, &request, checked).await
        });
        (context, ResponseFuture(future))
    }

    /// Returns the tools that guards around this agent may name.
    pub(super) fn known_tools(&self) -> &ToolNames {
        &self.0.known_tools.all
    }

    /// Runs the agent: `agent.run("text").await`, or with an [`AgentRequest`].
    ///
    /// Dropping the future cancels the run.
    ///
    /// # Errors
    ///
    /// Fails with the first error that no callback or layer recovered, with an abort, or with a
    /// cancellation. The error has the [checkpoint](Error::checkpoint) to resume from.
    pub fn run(&self, request: impl Into<AgentRequest>) -> ResponseFuture {
        self.clone().call(request.into())
    }

    /// Runs the agent and returns a stream of its events.
    pub fn stream(&self, request: impl Into<AgentRequest>) -> RunStream {
        RunStream::new(self.clone(), request.into())
    }

    /// Returns the agent's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.shell().name
    }

    /// Returns the description that the models of other agents read; empty by default.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.0.shell().description
    }

    /// Returns the callbacks and layers around each call, from the outside in.
    #[must_use]
    pub fn explain(&self) -> &Explanation {
        &self.0.explanation
    }

    /// Returns the same for one run, with the callbacks and layers that the request brings.
    #[must_use]
    pub fn explain_for(&self, request: &AgentRequest) -> Explanation {
        self.0.outline.explain(&None, request.callbacks.as_deref())
    }

    /// Returns whether the [global callbacks](crate::AgentBuilder::global_callbacks) have a
    /// [journal](crate::callback::Bundle::journal), so that another process can continue a run.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        let bundles = &self.0.shell().global;
        bundles.iter().any(|bundle| bundle.around.has_journal())
    }

    /// Returns whether the agent gives one final answer.
    pub(super) fn gives_one_answer(&self) -> bool {
        self.0.gives_one_answer
    }

    pub(super) fn outline(&self) -> Arc<Outline> {
        self.0.outline.clone()
    }

    pub(super) fn as_outline(&self) -> &Outline {
        &self.0.outline
    }
}

impl Service<AgentRequest> for Agent {
    type Response = AgentResponse;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: AgentRequest) -> ResponseFuture {
        let agent = self.0.clone();
        ResponseFuture(boxed(|| async move {
            let checked = agent.check(&request);
            let _open = agent.enter(&agent.shell().name, &mut request, false);
            run(&agent, &request, checked).await
        }))
    }
}

/// The maximum length of a run id in bytes.
const MAX_RUN_ID: usize = 1024;

impl AgentInner {
    fn shell(&self) -> &Shell {
        &self.outline.shell
    }

    /// Returns whether other agents speak in the agent's conversation.
    fn has_sub_agents(&self) -> bool {
        self.outline.is_team() || !self.outline.inside.is_empty()
    }

    /// Fails if the request cannot be part of its run, or a guard names a tool that the run should
    /// provide and does not.
    fn check(&self, request: &AgentRequest) -> Result<()> {
        let context = request.context();
        let settings = &context.scope().settings;
        if let Some(misfit) = &settings.misfit {
            return Err(misfit.clone());
        }
        settings.nesting.check()?;
        Guards::check(context)?;
        if request.answer_format().is_some() && !self.gives_one_answer {
            let message = "a parallel team gives several answers, and none in the request's answer \
                           format: let another agent answer after it, in a sequential team";
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let length = context.run_id().len();
        if length > MAX_RUN_ID {
            let message = format!("the run id is {length} bytes long; the maximum is {MAX_RUN_ID}");
            return Err(Error::new(ErrorKind::InvalidRequest, message));
        }
        let named = request
            .callbacks
            .as_deref()
            .map(RunBundles::named_tools)
            .unwrap_or_default();
        self.known_tools.check_run(&named, request.tools())
    }

    /// Moves the request into the agent's own part of the run, in which the agent has this name,
    /// with the data that it carries. Returns the open conversation, unless the agent continues its
    /// caller's.
    fn enter(&self, name: &str, request: &mut AgentRequest, is_member: bool) -> Option<Open> {
        // From here on they are part of the run: a sub-agent with a clone of the request must not
        // run them twice.
        let of_run = request.callbacks.take();
        let caller = &request.context().clone();
        let shell = self.shell();
        let inherited = Tree::enter(
            &caller.scope().settings.inherited,
            shell.rules.as_ref(),
            shell.at_no_answer,
            shell.global.iter().filter(|bundle| !bundle.is_idle()),
            of_run.as_deref(),
        );
        let mut entrant = Entrant::new(caller, name, is_member, inherited.clone());
        entrant.limit(self.max_iterations, shell.max_nesting);
        entrant.scope.settings.output_key = self.output_key.clone();
        let open = match request.joins_at {
            Some(at) => {
                entrant.join(at);
                None
            }
            // A layer around an agent's loop passes the agent's own request to another agent.
            None if request.record.is(&caller.place().record) => {
                entrant.take_over();
                None
            }
            None => {
                entrant.count();
                let shared = request.record.clone();
                let (record, open) = shared.open(request.messages_mut(), || entrant.id_prefix());
                entrant.open(record);
                Some(open)
            }
        };
        let context = entrant.told(Tree::observers(&inherited), request.takes_turn);
        let respond = Tree::loop_rules(&context).after_agent_respond;
        request.after_says_all = respond == AfterAgentRespond::Transform;
        request.is_for_team = self.outline.is_team();
        request.description = Some(shell.description.clone());
        request.enter(context);
        open
    }
}

/// `checked` says whether the run may start.
async fn run(
    agent: &AgentInner,
    request: &AgentRequest,
    checked: Result<()>,
) -> Result<AgentResponse> {
    let context = request.context();
    let entered = context
        .listeners()
        .is_told()
        .then(|| OnDrop::new(context.listeners().clone(), |listeners| dropped(listeners)));
    if let Some(listeners) = &entered {
        listeners.tell(EventKind::AgentStarted).await;
    }
    let result = answer(agent, request, checked).await;
    if let Some(entered) = entered {
        boxed(|| leave(entered, &result)).await;
    }
    // To the caller of a run, its end is an error like any other.
    result.map_err(|error| {
        if context.scope().is_outermost() {
            error.outside_run()
        } else {
            error
        }
    })
}

/// Returns a boxed future. Agents are nested as deeply as the stack allows: a separate function
/// creates the future, so that the stack reserves no space for it while it runs.
#[inline(never)]
pub(super) fn boxed<'a, F>(make: impl FnOnce() -> F) -> BoxFuture<'a, F::Output>
where
    F: Future + Send + 'a,
{
    Box::pin(make())
}

/// Tells of the end of an agent whose start was told.
async fn leave(mut listeners: OnDrop<Listeners>, result: &Result<AgentResponse>) {
    if let (Some(emitter), Ok(response)) = (&listeners.emitter, result) {
        // Not disarmed yet: dropped while the consumer is slow, the agent still has an end in the
        // stream.
        emitter.answered(response.new_messages()).await;
    }
    listeners.disarm();
    if let (Some(emitter), Err(_)) = (&listeners.emitter, result) {
        emitter.failed();
    }
    let interrupts = result
        .as_ref()
        .map(|response| response.interrupts().into())
        .unwrap_or_default();
    let error = result
        .as_ref()
        .err()
        .cloned()
        .map(Error::without_checkpoint);
    listeners
        .tell(EventKind::AgentFinished { interrupts, error })
        .await;
}

/// Tells of the end of an agent that was dropped, if its start was told.
fn dropped(listeners: &Listeners) {
    if let Some(emitter) = &listeners.emitter {
        emitter.failed();
    }
    let error = Some(Error::new(
        ErrorKind::Cancelled,
        "the agent's call was dropped",
    ));
    listeners.note(EventKind::AgentFinished {
        interrupts: Arc::default(),
        error,
    });
}

async fn answer(
    agent: &AgentInner,
    request: &AgentRequest,
    checked: Result<()>,
) -> Result<AgentResponse> {
    let context = request.context();
    // Refused here and not before: an agent that may not run has its events as well.
    checked.map_err(|error| error.in_call(|| CallSite::of(request)))?;
    context.endings().admit::<AgentRequest>()?;
    let result = until_cancelled(context, agent.stack.make(request.clone())).await;
    let result = ended(context, request, result).map(|mut response| {
        // The response of a layer, or its absence, is not part of the run yet.
        request.mark(&mut response, None, Origin::Service);
        let emitter = context.listeners().emitter.as_ref();
        response.identify(&context.place().record, emitter);
        if let Some(author) = context.place().author(agent.has_sub_agents()) {
            response.sign(&author);
        }
        if let (Some(key), Origin::Before) = (&agent.output_key, response.origin()) {
            context.state().set(&**key, response.text());
        }
        response
    });
    if context.place().has_opened() {
        with_progress(context, result)
    } else {
        result
    }
}

/// Adds the progress of an agent that has opened its record to its result.
fn with_progress(context: &RunContext, result: Result<AgentResponse>) -> Result<AgentResponse> {
    let record = &context.place().record;
    match result {
        Ok(response) => {
            let messages = response.ordered().clone();
            match response.interrupts() {
                // Only an agent that is done closes its record: an interrupted one goes on in a
                // later run.
                [] => record.finish(messages),
                _ => record.set(messages),
            }
            Ok(response.kept_by(context))
        }
        Err(error) => Err(error.with_checkpoint(context.scope().checkpoint(record))),
    }
}

async fn until_cancelled(
    context: &RunContext,
    call: BoxCallFuture<AgentRequest>,
) -> Result<AgentResponse> {
    let call = async {
        match &context.scope().settings.own_token {
            Some(own) => own.run_until_cancelled(call).await,
            None => Some(call.await),
        }
    };
    let done = context.cancellation().run_until_cancelled(call).await;
    done.flatten()
        .unwrap_or_else(|| Err(context.endings().cancel()))
}

/// Returns the result of a run: what has ended it takes precedence over the result of layers.
fn ended(
    context: &RunContext,
    request: &AgentRequest,
    result: Result<AgentResponse>,
) -> Result<AgentResponse> {
    let Some(ending) = context.endings().ending::<AgentRequest>() else {
        // Only errors from outside the stack are without the call, such as that of a cancelled
        // token.
        return result.map_err(|error| error.in_call(|| CallSite::of(request)));
    };
    if !ending.ends_with_response() {
        return Err(ending);
    }
    let end = EndReason::in_run(context);
    let waits = matches!(end, EndReason::Interrupted(_));
    let response = match result {
        // A layer's own response must not take the place of the calls that wait.
        Ok(response) if !(waits && response.is_bare()) => response,
        result => {
            let messages = context.place().begin(request.messages());
            let new_from = request.messages().len();
            let response = AgentResponse::of_run(messages, new_from, context, 0, end.clone());
            match result {
                Ok(mut bare) => {
                    request.mark(&mut bare, Some(&response), Origin::Service);
                    bare
                }
                Err(_) => response,
            }
        }
    };
    let mut response = response.with_end_reason(end);
    response.carry(context);
    Ok(response)
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// The future of an [`Agent`]. Dropping it cancels the run.
#[must_use = "a run does nothing until it is awaited"]
pub struct ResponseFuture(BoxFuture<'static, Result<AgentResponse>>);

impl Future for ResponseFuture {
    type Output = Result<AgentResponse>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
