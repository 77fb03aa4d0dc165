use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use tower::ServiceExt;

use super::translate::{
    TranslateRequest, TranslateResponse, TranslateRun, translate, translate_piece,
};
use super::{Event, OrderKeeper, RunAgentInput, RunError};
use crate::callback::Seam;
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::panic::{CatchPanic, catch};
use crate::runner::RunStream;
use crate::stream::{self, EventKind};

/// A run, as a stream of what a front end is sent; [`AgUi::run`](super::AgUi::run) makes it.
///
/// What leaves is in an order that the front end accepts, whatever callbacks do, and ends with
/// exactly one `RUN_FINISHED` or `RUN_ERROR`. Dropping it stops the agent.
#[must_use = "a run does nothing until its stream is read"]
pub struct AgUiRun {
    agent: Option<RunStream>,
    run: Arc<TranslateRun>,
    /// `None` if nothing stands around the translation.
    stack: Option<Seam<TranslateRequest>>,
    translating: Option<BoxFuture<'static, Result<TranslateResponse>>>,
    /// How the agent's run has ended.
    end: Option<stream::Event>,
    keeper: OrderKeeper,
    translated: Vec<Event>,
    /// What leaves next; the last first, once it is all in order.
    out: Vec<Event>,
}

impl AgUiRun {
    pub(super) fn new(
        agent: RunStream,
        input: Arc<RunAgentInput>,
        stack: Option<Seam<TranslateRequest>>,
    ) -> Self {
        let keeper = OrderKeeper::new(input.thread_id.clone(), input.run_id.clone());
        let run = TranslateRun::new(input, agent.context().clone());
        let (translated, out) = Default::default();
        let (agent, run, translating, end) = (Some(agent), Arc::new(run), None, None);
        Self { agent, run, stack, translating, end, keeper, translated, out }
    }

    /// An agent's event begins its way out.
    fn take(&mut self, event: stream::Event) -> Option<Event> {
        if is_end(&event) {
            self.end = Some(event.clone());
        }
        match &self.stack {
            None => return self.pass(event),
            Some(stack) => {
                let request = TranslateRequest::new(event, self.run.clone());
                let call = CatchPanic::new(stack.clone().oneshot(request));
                self.translating = Some(Box::pin(async move {
                    call.await.unwrap_or_else(|panic| {
                        let message = format!("a layer around the translation panicked: {panic}");
                        Err(Error::new(ErrorKind::Callback, message))
                    })
                }));
            }
        }
        None
    }

    /// Nothing stands around the translation. Nearly every event is one more piece of what the
    /// last was a piece of, and is out at once.
    fn pass(&mut self, event: stream::Event) -> Option<Event> {
        match translate_piece(event) {
            Ok(piece) if self.keeper.goes_on(&piece) => {
                lock(&self.run.shown).apply(&piece);
                return Some(piece);
            }
            Ok(piece) => {
                self.translated.push(piece);
                self.send();
            }
            Err(event) => self.translate(event),
        }
        None
    }

    fn translate(&mut self, event: stream::Event) {
        translate(event, &self.run, &mut self.translated);
        self.send();
    }

    /// What was translated goes out, in order.
    fn send(&mut self) {
        for event in self.translated.drain(..) {
            if let Err(violation) = self.keeper.push(event, &mut self.out) {
                self.keeper.fail(violation, &mut self.out);
                break;
            }
        }
        self.leave();
    }

    fn fail(&mut self, error: &Error) {
        self.keeper.fail(RunError::from(error), &mut self.out);
        self.leave();
    }

    fn leave(&mut self) {
        if self.keeper.is_over() {
            // Nothing that the agent does can leave any more.
            self.agent = None;
        }
        let mut shown = lock(&self.run.shown);
        self.out.iter().for_each(|event| shown.apply(event));
        self.out.reverse();
    }

    /// The agent has no more to tell.
    fn finish(&mut self) {
        self.agent = None;
        match self.end.take() {
            // The end is sent, whatever callbacks made of it.
            Some(end) if !self.keeper.is_over() => self.translate(end),
            _ => {
                self.keeper.finish(&mut self.out);
                self.leave();
            }
        }
    }
}

fn is_end(event: &stream::Event) -> bool {
    matches!(
        event.kind,
        EventKind::RunFinished | EventKind::RunInterrupted { .. } | EventKind::RunFailed { .. }
    )
}

impl Stream for AgUiRun {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let this = &mut *self;
        loop {
            if let Some(event) = this.out.pop() {
                return Poll::Ready(Some(event));
            }
            if let Some(translating) = &mut this.translating {
                let result = ready!(translating.as_mut().poll(cx));
                this.translating = None;
                match result {
                    Ok(response) => {
                        this.translated = response.into_events();
                        this.send();
                    }
                    Err(error) => this.fail(&error),
                }
                continue;
            }
            let Some(agent) = &mut this.agent else { return Poll::Ready(None) };
            match catch(|| agent.poll_next_unpin(cx)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(Some(event))) => {
                    if let Some(event) = this.take(event) {
                        return Poll::Ready(Some(event));
                    }
                }
                Ok(Poll::Ready(None)) => this.finish(),
                Err(panic) => {
                    let message = format!("a layer around the agent panicked: {panic}");
                    this.fail(&Error::new(ErrorKind::Other, message));
                }
            }
        }
    }
}

impl fmt::Debug for AgUiRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgUiRun").field("input", &self.run.input).finish_non_exhaustive()
    }
}
