//! The agreement of a session and a journal inside it on the calls that were open before a run: the
//! journal may repeat them, the session alone may not.

use std::fmt;

use tower_agent::callback::{Callback, before_agent};
use tower_agent::{AgentRequest, Error, ErrorKind, Request, RunContext};

use super::writer::Writer;
use crate::error::StoreError;

/// The key among the run's values.
const KEY: &str = "tower_agent_conversations.open_calls";

/// The calls of a session that were open before a run, for a journal of that run: the journal may
/// repeat them if their process is lost, the session alone may not.
///
/// A journal of your own tells the session before it makes such a call, and when it goes on with
/// the run of a lost process.
#[derive(Clone)]
pub struct OpenCalls(Writer);

impl OpenCalls {
    pub(super) fn new(writer: Writer) -> Self {
        Self(writer)
    }

    /// Lets a journal inside find them.
    pub(super) fn offer(&self, context: &RunContext) {
        context.values().set(KEY, self.clone());
    }

    /// Returns the open calls of a run's session, if the run has one.
    #[must_use]
    pub fn of(context: &RunContext) -> Option<Self> {
        let found = context.values().get::<Self>(KEY).ok().flatten();
        found.map(|calls| (*calls).clone())
    }

    /// Stores that a journal will know which of the calls were started. Call it before the first
    /// one is.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written, or another run has the session.
    pub async fn note_journal(&self) -> Result<(), StoreError> {
        self.0.note_journal().await
    }

    /// Notes that the journal has taken over the run of a lost process.
    pub async fn take_over(&self) {
        self.0.take_over().await;
    }

    /// Notes that the journal has not gone on with the run, and has it as before.
    pub async fn give_back(&self) {
        self.0.give_back().await;
    }

    /// Returns a guard that fails a run whose journal has not taken it over: it may repeat calls.
    pub(super) fn guard(&self) -> impl Callback<AgentRequest> {
        let writer = self.0.clone();
        // Inside the journal's layer, which has had its chance to take the run over.
        before_agent(move |request: &mut AgentRequest| {
            let writer = writer.clone();
            let run = request.context().run_id().to_owned();
            async move {
                if writer.is_lost().await {
                    return Err(without_journal(&run));
                }
                Ok(())
            }
        })
        .guard()
    }
}

/// Returns the error of a run that is made again without the journal that it had.
pub(super) fn without_journal(run: &str) -> Error {
    let message = format!(
        "the process of run `{run}` died, and only its journal knows which calls had started: give the \
         agent that journal, or let the model read that their outcome is unknown, with another run id"
    );
    Error::new(ErrorKind::InvalidRequest, message)
}

impl fmt::Debug for OpenCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenCalls").finish_non_exhaustive()
    }
}
