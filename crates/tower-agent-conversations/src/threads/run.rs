use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Stream, StreamExt};
use tower_agent::agent::{AgentService, RunStream};
use tower_agent::error::{Error, Result};
use tower_agent::stream::{Event, EventKind};
use tower_agent::{AgentResponse, Checkpoint, RunContext};
use tracing::Span;

use super::Begun;
use super::client::ClientView;
use super::interrupt_ids::InterruptIds;
use super::keeper::{Keeper, Save};
use super::progress::RunProgress;
use super::saving::Saving;
use super::shown::MissedMessage;
use crate::error::StoreError;

/// A run that has its thread, as a stream of its events; created by
/// [`ThreadService`](crate::ThreadService).
///
/// An event that the server must not forget, such as a tool's result or the end, comes when the
/// thread with it is saved. If that fails, the stream ends with the error, and the run is stopped.
/// Dropping the stream stops the run, and saves its progress in a task.
///
/// A server that translates events for its clients reads the run's own stream and saves with what
/// its client has: see [`agent`](Self::agent) and [`keep`](Self::keep).
#[must_use = "a run does nothing until its stream is read"]
pub struct ThreadRun {
    span: Span,
    /// Gone after the end.
    agent: Option<RunStream>,
    context: RunContext,
    keeper: Keeper,
    /// A save in progress.
    saving: Option<Saving>,
    /// The event that waits for the save.
    held: Option<Event>,
    missed: Vec<MissedMessage>,
    sealed: Option<String>,
    /// Nothing more is saved.
    is_kept: bool,
    /// A save has failed.
    is_lost: bool,
}

impl ThreadRun {
    /// Creates the run of an agent in a thread that was [begun](crate::Threads::begin).
    pub fn new(agent: impl AgentService, begun: Begun) -> Self {
        let Begun {
            request,
            keeper,
            name,
            missed,
        } = begun;
        let agent = RunStream::named(agent, request, name);
        Self {
            span: Span::current(),
            context: agent.context().clone(),
            agent: Some(agent),
            keeper,
            saving: None,
            held: None,
            missed,
            sealed: None,
            is_kept: false,
            is_lost: false,
        }
    }

    /// Returns the span in which the run was created, such as that of an HTTP request, and in which
    /// it goes on: a layer around the server may end when the response begins, whose body is the
    /// run. The stream enters it; a server that reads the [agent's own](Self::agent) does so
    /// itself.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the context of the run.
    #[must_use]
    pub fn context(&self) -> &RunContext {
        &self.context
    }

    /// Takes the messages that the client has missed, to send them first: another device of the
    /// user has gone on, or somebody else has [answered](crate::Threads::answer).
    pub fn take_missed(&mut self) -> Vec<MissedMessage> {
        std::mem::take(&mut self.missed)
    }

    /// Returns the ids under which the client receives the run's interrupts, and answers them.
    #[must_use]
    pub fn interrupt_ids(&self) -> &InterruptIds {
        self.keeper.interrupt_ids()
    }

    /// Takes the sealed thread for the client, after the end of a run whose server [keeps
    /// none](crate::Threads::with_seal).
    pub fn take_sealed(&mut self) -> Option<String> {
        self.sealed.take()
    }

    /// Returns the stream of the agent, until the run has ended.
    #[inline]
    pub fn agent(&mut self) -> Option<&mut RunStream> {
        self.agent.as_mut()
    }

    /// Stops the agent. [Keep](Self::keep) its progress first.
    pub fn stop(&mut self) {
        self.agent = None;
    }

    /// Returns with which progress to [keep](Self::keep) the run before this event is sent. `None`
    /// for one that the client may have before.
    #[must_use]
    pub fn save_before(&mut self, event: &EventKind) -> Option<RunProgress> {
        match event {
            EventKind::RunFinished { .. } | EventKind::RunInterrupted { .. } => {
                Some(RunProgress::Ended)
            }
            EventKind::RunFailed { error } => {
                self.keeper.note_error(error);
                Some(RunProgress::Cut)
            }
            event => self
                .keeper
                .must_save_before(event)
                .then_some(RunProgress::Running),
        }
    }

    /// Starts to save the progress, with what the client has of it: once more after the earlier
    /// saves, until the run has ended. Does nothing once the agent is [stopped](Self::stop).
    pub fn keep(&mut self, client: &impl ClientView, progress: RunProgress) {
        if let Some(checkpoint) = self.unkept() {
            self.save(checkpoint, client, progress);
        }
    }

    /// Returns the checkpoint of the run, unless its end is kept.
    fn unkept(&self) -> Option<Checkpoint> {
        let agent = self.agent.as_ref().filter(|_| !self.is_kept)?;
        Some(agent.checkpoint())
    }

    fn save(&mut self, checkpoint: Checkpoint, client: &impl ClientView, progress: RunProgress) {
        // Before the save has ended: a run ends once, and dropping it must not save another end.
        self.is_kept = progress != RunProgress::Running;
        let state = self.context.state().snapshot();
        match self.keeper.keep(checkpoint, state, client, progress) {
            Save::Sealed(sealed) => self.sealed = sealed,
            Save::Store(saving) => {
                self.saving = Some(match self.saving.take() {
                    None => saving,
                    Some(earlier) => saving.after(earlier),
                });
            }
        }
    }

    /// Returns whether the end of the run is saved, or is being saved.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns whether a save is in progress.
    #[must_use]
    pub fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Lets a task make the save in progress, also if nobody polls it.
    pub fn save_in_task(&mut self) {
        self.saving = self.saving.take().map(Saving::in_task);
    }

    /// Waits until the progress is saved.
    ///
    /// # Errors
    ///
    /// Fails if it was not. What depends on it must not be sent; [`keep`](Self::keep) saves it once
    /// more, as that of a run that broke off: until that succeeds, the run has the thread.
    pub fn poll_saved(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StoreError>> {
        let Some(saving) = &mut self.saving else {
            return Poll::Ready(Ok(()));
        };
        let saved = ready!(Pin::new(saving).poll(cx));
        self.saving = None;
        if saved.is_err() {
            // Only the second failure is final.
            self.is_kept = std::mem::replace(&mut self.is_lost, true);
        }
        Poll::Ready(saved)
    }

    /// Keeps the progress for a client that has all messages of the run, each whole.
    fn keep_whole(&mut self, progress: RunProgress) {
        if let Some(checkpoint) = self.unkept() {
            let messages = checkpoint.messages.clone();
            self.save(checkpoint, &messages, progress);
        }
    }

    /// Reads the stream to its end, and returns the response of the run once it is saved.
    ///
    /// # Errors
    ///
    /// Fails as the agent does, and with [`Store`](tower_agent::ErrorKind::Store) if the progress
    /// cannot be saved.
    pub async fn response(mut self) -> Result<AgentResponse> {
        while let Some(event) = self.next().await {
            event?;
        }
        match self.agent.take() {
            Some(agent) => agent.response().await,
            None => Err(Error::from(StoreError::data("the run was stopped"))),
        }
    }
}

impl Stream for ThreadRun {
    type Item = Result<Event, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let _entered = self.span.clone().entered();
        if let Err(error) = ready!(self.poll_saved(cx)) {
            self.held = None;
            self.keep_whole(RunProgress::Cut);
            self.stop();
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(event) = self.held.take() {
            return Poll::Ready(Some(Ok(event)));
        }
        let Some(agent) = &mut self.agent else {
            return Poll::Ready(None);
        };
        let Some(event) = ready!(agent.poll_next_unpin(cx)) else {
            self.keep_whole(RunProgress::Cut);
            return self.poll_saved(cx).map(|saved| saved.err().map(Err));
        };
        if let Some(progress) = self.save_before(&event.kind) {
            self.keep_whole(progress);
            self.held = Some(event);
            return self.poll_next(cx);
        }
        Poll::Ready(Some(Ok(event)))
    }
}

impl Drop for ThreadRun {
    /// Saves the progress, also of a run whose stream is not read to its end.
    fn drop(&mut self) {
        let _entered = self.span.clone().entered();
        // Before the agent goes: the checkpoint is its.
        self.keep_whole(RunProgress::Cut);
        self.agent = None;
        if let Some(saving) = self.saving.take() {
            saving.detach();
        }
    }
}

impl fmt::Debug for ThreadRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadRun")
            .field("keeper", &self.keeper)
            .finish_non_exhaustive()
    }
}
