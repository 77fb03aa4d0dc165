use std::sync::{Arc, Mutex};

use super::blocks::Blocks;
use super::draft::{self, look_alike};
use super::{Delta, EventKind};
use crate::error::{Error, ErrorKind, Result};
use crate::lock::lock;
use crate::message::Message;

/// What is seen of one model call. Of its attempts one at a time is let through: the first to say
/// something, until it is dropped or done and another says something.
#[derive(Debug)]
pub(super) struct Call {
    message: Arc<str>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    attempts: u32,
    live: Option<Live>,
    is_over: bool,
}

/// The attempt that is let through.
#[derive(Debug)]
struct Live {
    attempt: u32,
    blocks: Blocks,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Writing,
    /// It was dropped before it was done.
    Abandoned,
    /// It is done, and `sent` was seen. Only those that began later take its place.
    Finished {
        sent: Message,
        attempts: u32,
    },
}

impl Live {
    fn yields_to(&self, attempt: u32) -> bool {
        match self.phase {
            Phase::Writing => false,
            Phase::Abandoned => true,
            Phase::Finished { attempts, .. } => attempt >= attempts,
        }
    }

    fn discard(mut self, out: &mut Vec<EventKind>) {
        self.blocks.close(out);
        out.push(EventKind::AttemptDiscarded { message: self.blocks.message });
    }
}

impl Call {
    pub(super) fn new(message: Arc<str>) -> Self {
        Self { message, state: Mutex::default() }
    }

    /// The number of another attempt.
    pub(super) fn open(&self) -> u32 {
        let mut state = lock(&self.state);
        let attempt = state.attempts;
        state.attempts += 1;
        attempt
    }

    /// Whether anything of this call has been seen.
    pub(super) fn is_committed(&self) -> bool {
        lock(&self.state).live.is_some()
    }

    /// The message that an attempt is seen as.
    fn message(&self, attempt: u32) -> Arc<str> {
        match attempt {
            0 => self.message.clone(),
            again => format!("{}.{again}", self.message).into(),
        }
    }

    /// A name for a tool call that has none of its own.
    pub(super) fn name_tool_call(&self, attempt: u32, index: usize) -> Arc<str> {
        format!("{}-t{index}", self.message(attempt)).into()
    }

    /// Makes this attempt the one that is let through, if it may be. `draft` is what it has said
    /// so far.
    fn claim(
        &self,
        state: &mut State,
        attempt: u32,
        draft: Vec<Delta>,
        out: &mut Vec<EventKind>,
    ) -> bool {
        if state.live.as_ref().is_some_and(|live| !live.yields_to(attempt)) {
            return false;
        }
        if let Some(void) = state.live.take() {
            void.discard(out);
        }
        let mut blocks = Blocks::new(self.message(attempt));
        draft.into_iter().for_each(|delta| blocks.write(delta, out));
        state.live = Some(Live { attempt, blocks, phase: Phase::Writing });
        true
    }

    /// An attempt says something more; `draft` is all that it has said.
    pub(super) fn write(
        &self,
        attempt: u32,
        delta: Delta,
        draft: impl FnOnce() -> Vec<Delta>,
        out: &mut Vec<EventKind>,
    ) -> Result<()> {
        let mut state = lock(&self.state);
        if state.is_over {
            let message = "the call was answered without this attempt";
            return Err(Error::new(ErrorKind::Cancelled, message));
        }
        match &mut state.live {
            Some(live) if live.attempt == attempt => live.blocks.write(delta, out),
            Some(live) if !live.yields_to(attempt) => {}
            _ => drop(self.claim(&mut state, attempt, draft(), out)),
        }
        Ok(())
    }

    /// An attempt is done; `sent` is what was to be seen of it.
    pub(super) fn finish(&self, attempt: u32, sent: Message, out: &mut Vec<EventKind>) {
        let mut state = lock(&self.state);
        let attempts = state.attempts;
        let is_live = |live: &Live| live.attempt == attempt;
        if state.is_over || !draft::is_visible(&sent) {
            return;
        }
        if !state.live.as_ref().is_some_and(is_live)
            && !self.claim(&mut state, attempt, draft::deltas(&sent), out)
        {
            return;
        }
        if let Some(live) = &mut state.live {
            live.blocks.close(out);
            live.phase = Phase::Finished { sent, attempts };
        }
    }

    /// An attempt was dropped before it was done.
    pub(super) fn abandon(&self, attempt: u32) {
        match &mut lock(&self.state).live {
            Some(live) if live.attempt == attempt && matches!(live.phase, Phase::Writing) => {
                live.phase = Phase::Abandoned;
            }
            _ => {}
        }
    }

    /// The call is over: what is seen becomes what was answered. Returns the message that it is
    /// seen as, if there is anything to see.
    pub(super) fn settle(
        &self,
        answer: Option<(&Message, Option<u32>)>,
        out: &mut Vec<EventKind>,
    ) -> Option<Arc<str>> {
        let mut state = lock(&self.state);
        state.is_over = true;
        if let Some(mut live) = state.live.take() {
            match (&live.phase, answer) {
                (Phase::Finished { sent, .. }, Some((message, _))) if look_alike(sent, message) => {
                    return Some(live.blocks.message);
                }
                // Another answer stands in its place.
                (Phase::Finished { .. }, Some((_, by)))
                    if by.is_none_or(|by| by == live.attempt) =>
                {
                    live.blocks.close(out);
                    out.push(EventKind::ResponseReplaced { message: live.blocks.message });
                }
                _ => live.discard(out),
            }
        }
        let (message, _) = answer.filter(|(message, _)| draft::is_visible(message))?;
        let mut blocks = Blocks::new(self.message(state.attempts));
        draft::deltas(message).into_iter().for_each(|delta| blocks.write(delta, out));
        blocks.close(out);
        Some(blocks.message)
    }
}
