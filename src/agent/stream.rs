use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, TryFutureExt};
use tower::ServiceExt;

use crate::call::Request;
use crate::context::RunContext;
use crate::conversation::ConversationRecord;
use crate::error::{Error, ErrorKind, Result};
use crate::run::{AgentRequest, AgentResponse, AgentService, Checkpoint, EndReason};
use crate::stream::{Event, EventKind, EventStream, Invocation};

/// The maximum number of events that wait for the consumer.
const CAPACITY: usize = 16;

/// A run as a stream of events; created by [`Agent::stream`](crate::Agent::stream).
///
/// Reading the stream drives the run, from the second event on: a consumer that stops reading stops
/// the run, and dropping the stream cancels it. The last event says how the run has ended;
/// [`response`](Self::response) returns what [`Agent::run`](crate::Agent::run) would have returned.
///
/// ```
/// use futures::StreamExt;
/// use tower_agent::stream::EventKind;
/// use tower_agent::{Agent, BoxError};
/// use tower_agent_test::{ScriptedModel, Turn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let agent = Agent::builder(ScriptedModel::new([Turn::from_text("It rains.")])).build()?;
///
/// let mut run = agent.stream("How is the weather?");
/// let mut seen = String::new();
/// while let Some(event) = run.next().await {
///     if let EventKind::TextDelta { text, .. } = event.kind {
///         seen.push_str(&text);
///     }
/// }
/// assert_eq!(run.response().await?.text(), seen);
/// # Ok(())
/// # }
/// ```
#[must_use = "a run does nothing until its stream is read"]
pub struct RunStream {
    run: Option<BoxFuture<'static, Result<AgentResponse>>>,
    result: Option<Result<AgentResponse>>,
    events: EventStream,
    context: RunContext,
    record: ConversationRecord,
}

impl RunStream {
    /// Calls any agent service, such as an [`Agent`](crate::Agent) inside tower layers, and streams
    /// its events.
    pub fn new<S: AgentService>(service: S, request: AgentRequest) -> Self {
        let name: Arc<str> = request.context().run_id().into();
        Self::named(service, request, name)
    }

    /// Calls any agent service, as [`new`](Self::new) does. The ids of messages and invocations
    /// start with `name` instead of the run's id: for a run whose id is set by others and may not
    /// be unique.
    pub fn named<S: AgentService>(
        service: S,
        mut request: AgentRequest,
        name: impl Into<Arc<str>>,
    ) -> Self {
        let context = request.context().clone();
        let record = request.record.clone();
        record.expect(request.messages());
        let (watched, events) = context.watched(name.into(), CAPACITY);
        // Added before the run is polled: it is the first event, whatever a layer around the agent
        // does.
        if let Some(emitter) = &watched.listeners().emitter {
            let run = context.run_id().into();
            drop(emitter.emit(EventKind::RunStarted { run }));
        }
        request.enter(watched);
        let run = run(service, request, record.clone());
        let run: BoxFuture<'static, _> = Box::pin(run);
        Self {
            run: Some(run),
            result: None,
            events,
            context,
            record,
        }
    }

    /// Returns the context of the run.
    #[must_use]
    pub fn context(&self) -> &RunContext {
        &self.context
    }

    /// Returns the checkpoint of the progress so far, to [resume](AgentRequest::resume) from: for a
    /// consumer that stops reading or is about to be dropped.
    ///
    /// It contains every tool result that the stream has emitted. After the run has ended, it is
    /// the checkpoint of the response or the error.
    ///
    /// ```
    /// use futures::StreamExt;
    /// use tower_agent::stream::EventKind;
    /// # use serde_json::{Value, json};
    /// # use tower_agent::{Agent, Tool};
    /// # use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// # let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Paid.")]);
    /// # let pay = Tool::function("pay", "Pays.", |_: Value| "paid");
    /// # let agent = Agent::builder(model).tool(pay).build()?;
    /// let mut run = agent.stream("Pay the bill.");
    /// while let Some(event) = run.next().await {
    ///     if matches!(event.kind, EventKind::ToolResult(_)) {
    ///         break;
    ///     }
    /// }
    /// let checkpoint = run.checkpoint();
    /// drop(run);
    /// assert!(checkpoint.messages.iter().any(|message| message.tool_results().next().is_some()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn checkpoint(&self) -> Checkpoint {
        let ended = match &self.result {
            Some(Ok(response)) => Some(response.checkpoint()),
            Some(Err(error)) => error.checkpoint().cloned(),
            None => None,
        };
        ended.unwrap_or_else(|| self.context.scope().checkpoint(&self.record))
    }

    /// Waits until the run shows something: text, reasoning, a tool call or its result, or a custom
    /// event. It is for a server, which must know the status of its answer before the first byte:
    /// see [`ErrorKind::http_status`]. The events so far stay in the stream.
    ///
    /// A run that ends without output, or waits for input, is no error either.
    ///
    /// ```
    /// use tower_agent::{Agent, Error, ErrorKind};
    /// use tower_agent_test::{ScriptedModel, Turn};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let busy = Turn::error(Error::new(ErrorKind::Overloaded, "busy"));
    /// let agent = Agent::builder(ScriptedModel::new([busy])).build()?;
    ///
    /// let mut run = agent.stream("How is the weather?");
    /// let error = run.first_output().await.unwrap_err();
    /// assert_eq!(error.kind().http_status(), 503);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with the error of the run if it fails before it has shown anything. It has ended then,
    /// and [`response`](Self::response) fails in the same way.
    pub async fn first_output(&mut self) -> Result<()> {
        poll_fn(|cx| {
            self.events.resume();
            loop {
                self.poll_to_end(cx);
                let has_more = self.events.take_more(cx);
                if self.events.has_output() {
                    return Poll::Ready(Ok(()));
                }
                if let Some(result) = &self.result {
                    return Poll::Ready(result.as_ref().map(drop).map_err(Error::clone));
                }
                // Events that were taken have made room for others, which the run may wait for.
                if !has_more {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Polls the run, and keeps its result once it has ended.
    fn poll_to_end(&mut self, cx: &mut Context<'_>) {
        if let Some(run) = &mut self.run
            && let Poll::Ready(result) = run.as_mut().poll(cx)
        {
            // Dropped at once: what it owns is free before the consumer reads the last events.
            self.run = None;
            self.result = Some(result);
        }
    }

    /// Waits until an event is [ready](Self::ready). Returns `false` at the end.
    ///
    /// Use it in a translator, which looks at many events and keeps none: the [`Stream`] clones the
    /// invocation for each.
    #[inline]
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.events.resume();
        if !self.events.is_ready() {
            self.poll_to_end(cx);
        }
        if self.events.is_ready() {
            return Poll::Ready(true);
        }
        // The run has ended and its events are read: nothing can follow.
        if self.run.is_none() {
            return Poll::Ready(false);
        }
        // Tasks that the run has spawned may add events while the run itself is pending.
        self.events.poll_ready(cx)
    }

    /// Returns the invocation and the kind of the event that is ready.
    #[must_use]
    #[inline]
    pub fn ready(&self) -> Option<(&Arc<Invocation>, &EventKind)> {
        self.events.ready()
    }

    /// Takes the event that is ready, without its invocation.
    #[inline]
    pub fn take_ready(&mut self) -> Option<EventKind> {
        self.events.leave();
        self.events.take_ready()
    }

    /// Takes the event that is ready.
    #[inline]
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.leave();
        self.events.take_event()
    }

    /// Reads the stream to its end, and returns the response of the run.
    ///
    /// # Errors
    ///
    /// Fails as [`Agent::run`](crate::Agent::run) does.
    pub async fn response(mut self) -> Result<AgentResponse> {
        while self.next().await.is_some() {}
        self.result.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::Cancelled,
                "the run panicked before it had a response",
            ))
        })
    }
}

fn run<S: AgentService>(
    service: S,
    request: AgentRequest,
    record: ConversationRecord,
) -> impl Future<Output = Result<AgentResponse>> + Send {
    let context = request.context().clone();
    // Outside the block, which would have room for the request beside it. It starts when it is
    // polled.
    let call = service.oneshot(request);
    let call = call.map_err(|error| Error::from(error.into()));
    async move {
        let Some(emitter) = &context.listeners().emitter else {
            return call.await;
        };
        // Before the first callback runs: a consumer's copy of the state starts from it.
        emitter.emit_state().await;
        let mut result = call.await;
        if let Ok(response) = &mut result {
            // A layer around the agent may have changed what was streamed, or called the agent
            // again.
            response.identify(&record, Some(emitter));
            emitter.answered(response.new_messages()).await;
        }
        let end = match &result {
            Ok(response) => match response.end_reason().clone() {
                EndReason::Interrupted(interrupts) => EventKind::RunInterrupted { interrupts },
                reason => EventKind::RunFinished { reason },
            },
            Err(error) => EventKind::RunFailed {
                error: error.clone().without_checkpoint(),
            },
        };
        emitter.end(end);
        result
    }
}

impl Stream for RunStream {
    type Item = Event;

    #[inline]
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if !ready!(self.poll_ready(cx)) {
            return Poll::Ready(None);
        }
        Poll::Ready(self.take_event())
    }
}

impl fmt::Debug for RunStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream")
            .field("context", &self.context)
            .finish_non_exhaustive()
    }
}
