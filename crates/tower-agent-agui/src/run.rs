use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::Stream;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use crate::conversation::Conversation;
use crate::failure::FailureMessage;
use crate::flow::Flow;
use crate::lock::lock;
use crate::order::OrderKeeper;
use crate::permit::{Permit, Stop};
use crate::translate::{
    TranslateRequest, TranslateResponse, TranslateRun, failed, translate, translate_piece,
    translate_through,
};
use crate::wire::{EncryptedEntity, Event, InputErrorKind, MessageKind, RunAgentInput, RunError};
use tower_agent::agent::BoxAgent;
use tower_agent::callback::LayerInner;
use tower_agent::error::{Error, ErrorKind, Result, panic_message};
use tower_agent::stream::{self, EventKind};
use tower_agent_conversations::{Begun, Roles, RunProgress, ThreadRun};
use tracing::span::EnteredSpan;

/// A run as a stream of events for the client; created by [`AgUi::run`](super::AgUi::run).
///
/// The events are in an order that the client accepts, whatever callbacks do, and end with exactly
/// one `RUN_FINISHED` or `RUN_ERROR`. Dropping the stream stops the agent and saves its progress.
/// For a client that may never read, such as that of a WebSocket, put the stream into a
/// [`ReadTimeout`](tower_agent::serve::ReadTimeout); the server's own
/// [responses](crate::server::Body) do that.
///
/// If the server [shuts down](crate::AgUi::shutdown), the run is ended, whether its stream is read
/// or not.
#[must_use = "a run does nothing until its stream is read"]
pub struct AgUiRun(Arc<Mutex<ActiveRun>>);

/// A run, which is shared with its server so that it can be stopped while nobody reads it.
pub(crate) struct ActiveRun {
    /// The run in its thread. The events that depend on a save wait for it.
    kept: ThreadRun,
    /// The event that waits for a save.
    held: Option<stream::Event>,
    run: Arc<TranslateRun>,
    /// `None` if there are no callbacks or layers around the translation.
    stack: Option<LayerInner<TranslateRequest>>,
    translating: Option<BoxFuture<'static, Result<TranslateResponse>>>,
    /// The end of the agent's run.
    end: Option<stream::Event>,
    order: OrderKeeper,
    /// The text that the last event was a piece of, if there are no callbacks around the
    /// translation. It is missing in the messages that the client has until
    /// [`catch_up`](Self::catch_up).
    flow: Option<Flow>,
    translated: Vec<Event>,
    /// The next events; last first, once they are in order.
    out: Vec<Event>,
    /// Given back at the end, or when the stream is dropped.
    permit: Option<Permit>,
    /// The time at which the run is stopped.
    deadline: Option<Pin<Box<Sleep>>>,
    /// The run was stopped at its deadline.
    is_late: bool,
    /// Woken when the run is stopped while it waits.
    reader: Waker,
}

/// The parts of a run that are the same for all runs of a server.
pub(super) struct Served {
    pub(super) agent: BoxAgent,
    pub(super) stack: Option<LayerInner<TranslateRequest>>,
    pub(super) failure_message: FailureMessage,
    /// The time after which the run is stopped.
    pub(super) time: Duration,
}

impl AgUiRun {
    pub(super) fn new(
        served: Served,
        begun: Begun,
        input: Arc<RunAgentInput>,
        roles: Roles,
        permit: Permit,
    ) -> Self {
        let Served {
            agent,
            stack,
            failure_message,
            time,
        } = served;
        let mut kept = ThreadRun::new(agent, begun);
        let missed = kept.take_missed();
        let order = OrderKeeper::new(input.thread_id.clone(), input.run_id.clone());
        let interrupt_ids = kept.interrupt_ids().clone();
        let context = kept.context().clone();
        let run = TranslateRun::new(input, context, interrupt_ids, roles, failure_message)
            .with_missed(missed);
        let active = Arc::new(Mutex::new(ActiveRun {
            kept,
            held: None,
            run: Arc::new(run),
            stack,
            translating: None,
            end: None,
            order,
            flow: None,
            translated: Vec::new(),
            out: Vec::new(),
            permit: None,
            // A program that polls a run by hand, without a runtime, has no clock for it.
            deadline: Handle::try_current().ok().map(|_| Box::pin(sleep(time))),
            is_late: false,
            reader: Waker::noop().clone(),
        }));
        let weak = Arc::downgrade(&active);
        permit.started(weak);
        lock(&active).permit = Some(permit);
        Self(active)
    }

    /// Returns the run, to read several events at once.
    pub(crate) fn lock(&mut self) -> MutexGuard<'_, ActiveRun> {
        lock(&self.0)
    }
}

impl ActiveRun {
    /// Enters the span that the run was begun in.
    pub(crate) fn enter(&self) -> EnteredSpan {
        self.kept.span().clone().entered()
    }

    /// Notes the agent's next event if it is the next piece of a text, for which nothing else is to
    /// do.
    #[inline]
    fn is_piece(&mut self) -> bool {
        let Some(flow) = &mut self.flow else {
            return false;
        };
        let ready = self.kept.agent().and_then(|agent| agent.ready());
        ready.is_some_and(|(invocation, kind)| flow.takes(invocation, kind))
    }

    #[inline]
    fn take_piece(&mut self) -> Option<Event> {
        let subagent = self.flow.as_ref()?.subagent.clone();
        translate_piece(self.kept.agent()?.take_ready()?, subagent)
    }

    /// Takes the agent's next event, which is saved first if necessary.
    #[inline(never)]
    fn hear(&mut self) -> Option<Event> {
        let agent = self.kept.agent()?;
        agent.ready()?;
        let event = agent.take_event()?;
        self.catch_up();
        let Some(progress) = self.kept.save_before(&event.kind) else {
            return self.take(event);
        };
        // Translated first, so that its form for the client is saved with it. It is not sent before
        // the save is made.
        if progress == RunProgress::Running && self.stack.is_none() {
            self.translate(event);
            self.keep(progress);
            return None;
        }
        self.keep(progress);
        if !self.kept.is_saving() {
            return self.take(event);
        }
        // The client must not see what a restarted server would not know.
        self.held = Some(event);
        None
    }

    /// Ends the flow of a text, which is then in the messages that the client has.
    fn catch_up(&mut self) {
        if let Some(flow) = self.flow.take() {
            flow.put_back(&mut lock(&self.run.shown));
        }
    }

    fn keep(&mut self, progress: RunProgress) {
        self.catch_up();
        self.kept.keep(&*lock(&self.run.shown), progress);
    }

    /// Returns the event with the sealed thread, once.
    fn take_sealed(&mut self) -> Option<Event> {
        let sealed = self.kept.take_sealed()?;
        in_first(&lock(&self.run.shown), sealed)
    }

    /// Starts to translate an event.
    fn take(&mut self, event: stream::Event) -> Option<Event> {
        if is_end(&event) {
            self.end = Some(event.clone());
        }
        match &self.stack {
            None => return self.pass(event),
            Some(stack) => {
                let request = TranslateRequest::new(event, self.run.clone());
                self.translating = Some(Box::pin(translate_through(stack.clone(), request)));
            }
        }
        None
    }

    /// Translates an event without callbacks or layers. Nearly every event is another piece of the
    /// same entity and is emitted at once.
    fn pass(&mut self, event: stream::Event) -> Option<Event> {
        let Some(mut flow) = Flow::of(&event) else {
            self.translate(event);
            return None;
        };
        let piece = translate_piece(event.kind, flow.subagent.clone())?;
        if self.order.goes_on(&piece) {
            let mut shown = lock(&self.run.shown);
            shown.apply(&piece);
            let flows = flow.take_text(&mut shown);
            drop(shown);
            self.flow = flows.then_some(flow);
            return Some(piece);
        }
        self.translated.push(piece);
        self.send();
        None
    }

    fn translate(&mut self, event: stream::Event) {
        translate(event, &self.run, &mut self.translated);
        self.send();
    }

    /// Emits translated events, in order.
    fn send(&mut self) {
        let is_ending = self.translated.iter().any(is_last);
        let mut sealed = is_ending.then(|| self.take_sealed()).flatten();
        for event in self.translated.drain(..) {
            if is_last(&event)
                && let Some(sealed) = sealed.take()
            {
                drop(self.order.push(sealed, &mut self.out));
            }
            if let Err(violation) = self.order.push(event, &mut self.out) {
                let mut failed = RunError::from(violation.clone());
                failed.message = self.run.message_of(&violation.into());
                self.order.fail(failed, &mut self.out);
                break;
            }
        }
        self.leave();
    }

    fn fail(&mut self, error: RunError) {
        self.keep(RunProgress::Cut);
        if let Some(sealed) = self.take_sealed() {
            drop(self.order.push(sealed, &mut self.out));
        }
        self.order.fail(error, &mut self.out);
        self.leave();
    }

    fn fail_with(&mut self, error: &Error) {
        let error = failed(error, &self.run);
        self.fail(error);
    }

    /// Ends the run for a server that shuts down, also if it is not polled again.
    fn stop(&mut self) {
        // The end of the run may be on its way to the client, and is then its true end.
        if !self.kept.is_kept() {
            self.translating = None;
            // Sent before the error. They are in order already, and noted.
            let unread = std::mem::take(&mut self.out);
            let message = "the server shut down during the run; its progress is saved";
            self.fail(RunError::new(message).with_code(InputErrorKind::ShuttingDown.code()));
            self.out.extend(unread);
        }
        // A client that does not read must not keep its thread from another server.
        self.kept.save_in_task();
        self.permit = None;
        self.reader.wake_by_ref();
    }

    fn leave(&mut self) {
        let mut shown = lock(&self.run.shown);
        self.out.iter().for_each(|event| shown.apply(event));
        drop(shown);
        self.out.reverse();
        if self.order.is_over() {
            // No further event of the agent can be emitted.
            self.keep(RunProgress::Cut);
            self.kept.stop();
        }
    }

    /// Waits: the reader must also learn that the run was stopped.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        self.reader.clone_from(cx.waker());
        Poll::Pending
    }

    /// Notes whether the run has taken too long. Once for many events: to ask the clock costs as
    /// much as an event.
    pub(crate) fn look_at_clock(&mut self, cx: &mut Context<'_>) {
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            self.deadline = None;
            self.is_late = true;
        }
    }

    /// Handles a failed save: its events are not emitted. The progress is saved once more as that
    /// of a run that broke off; until a save succeeds, the run keeps the thread.
    fn lose(&mut self, error: &(dyn std::error::Error + 'static)) {
        let run_id = self.kept.context().run_id();
        tracing::error!(run_id, error = %error.to_string().escape_debug(), "failed to save the progress of a run");
        self.keep(RunProgress::Cut);
        let message = "the progress of this run could not be saved, so it was stopped";
        let error = RunError::new(message).with_code("thread_store");
        if !self.order.is_over() {
            // The pending events report the unsaved progress.
            self.out.clear();
            self.order.fail(error, &mut self.out);
            self.leave();
        }
    }

    /// Handles the end of the agent's events.
    fn finish(&mut self) {
        self.keep(RunProgress::Cut);
        self.kept.stop();
        match self.end.take() {
            // The end is always sent, whatever callbacks return.
            Some(end) if !self.order.is_over() => self.translate(end),
            _ => {
                self.order.finish(&mut self.out);
                self.leave();
            }
        }
    }
}

/// Returns the event that gives the client its sealed thread, in the first message that it will
/// send back.
fn in_first(shown: &Conversation, sealed: String) -> Option<Event> {
    let first = shown.messages().iter().find(|message| {
        let is_activity = matches!(message.kind, MessageKind::Activity { .. });
        message.subagent_run_id.is_none() && !is_activity
    })?;
    let entity = EncryptedEntity::Message;
    Some(Event::reasoning_encrypted_value(
        entity,
        first.id.clone(),
        sealed,
    ))
}

fn is_last(event: &Event) -> bool {
    use crate::wire::EventKind::{RunError, RunFinished};
    matches!(event.kind, RunFinished(_) | RunError(_))
}

fn is_end(event: &stream::Event) -> bool {
    matches!(
        event.kind,
        EventKind::RunFinished { .. }
            | EventKind::RunInterrupted { .. }
            | EventKind::RunFailed { .. }
    )
}

impl Stop for Mutex<ActiveRun> {
    fn stop(&self) {
        let run = match self.try_lock() {
            Ok(run) => Some(run),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            // It is being polled, perhaps by whoever waits for the server to shut down.
            Err(TryLockError::WouldBlock) => None,
        };
        if let Some(mut run) = run {
            let _entered = run.enter();
            run.stop();
        }
    }
}

impl Stream for AgUiRun {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut run = self.lock();
        let _entered = run.enter();
        run.look_at_clock(cx);
        run.poll_next(cx)
    }
}

impl ActiveRun {
    /// Returns the next event, as a stream does, after a
    /// [look at the clock](Self::look_at_clock).
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = self;
        loop {
            if this.kept.is_saving() {
                let Poll::Ready(saved) = this.kept.poll_saved(cx) else {
                    return this.wait(cx);
                };
                if let Err(error) = saved {
                    this.lose(&error);
                }
                // If the save has failed, the agent is gone, and its event is about lost progress.
                let held = this.held.take().filter(|_| this.kept.agent().is_some());
                if let Some(event) = held.and_then(|event| this.take(event)) {
                    return Poll::Ready(Some(event));
                }
                continue;
            }
            if let Some(event) = this.out.pop() {
                return Poll::Ready(Some(event));
            }
            if this.is_late && this.kept.agent().is_some() {
                this.is_late = false;
                // The translation of an event that comes too late.
                this.translating = None;
                let message = "the run took longer than the server allows, and was stopped";
                this.fail_with(&Error::new(ErrorKind::Timeout, message));
                continue;
            }
            if let Some(translating) = &mut this.translating {
                let Poll::Ready(result) = translating.as_mut().poll(cx) else {
                    return this.wait(cx);
                };
                this.translating = None;
                match result {
                    Ok(response) => {
                        this.translated = response.into_events();
                        this.send();
                    }
                    Err(error) => this.fail_with(&error),
                }
                continue;
            }
            let Some(agent) = this.kept.agent() else {
                this.permit = None;
                return Poll::Ready(None);
            };
            // A panic would cut the connection, and the client is owed an end of the run.
            match catch_unwind(AssertUnwindSafe(|| agent.poll_ready(cx))) {
                Ok(Poll::Pending) => return this.wait(cx),
                Ok(Poll::Ready(true)) => {
                    if this.is_piece() {
                        return Poll::Ready(this.take_piece());
                    }
                    if let Some(event) = this.hear() {
                        return Poll::Ready(Some(event));
                    }
                }
                Ok(Poll::Ready(false)) => this.finish(),
                Err(panic) => {
                    let message = panic_message(&*panic);
                    let message = format!("a layer around the agent panicked: {message}");
                    this.fail_with(&Error::new(ErrorKind::Other, message));
                }
            }
        }
    }
}

impl Drop for ActiveRun {
    /// Saves the progress, also of a run whose stream is not read to its end.
    fn drop(&mut self) {
        let _entered = self.enter();
        self.keep(RunProgress::Cut);
        self.kept.stop();
    }
}

impl fmt::Debug for AgUiRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgUiRun").finish_non_exhaustive()
    }
}
