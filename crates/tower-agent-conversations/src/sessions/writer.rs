use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::Mutex;
use tower_agent::Checkpoint;

use super::format::{Draft, Sessions, Settled};
use crate::error::StoreError;
use crate::head::Claim;
use crate::lease::Lease;

/// Writes the session of one run. Clones share it.
#[derive(Clone)]
pub(super) struct Writer {
    lease: Lease,
    sessions: Sessions,
    session: Arc<Mutex<SessionState>>,
}

/// The session as the run knows it.
pub(super) struct SessionState {
    /// The run's id.
    pub(super) run: Arc<str>,
    /// The messages that are stored as entries.
    pub(super) entries: Settled,
    /// The previous process of this run was lost, and no journal has taken the run over.
    pub(super) is_lost: bool,
    /// It was lost, whether a journal has taken it over or not.
    pub(super) was_lost: bool,
}

impl Writer {
    pub(super) fn new(lease: Lease, sessions: Sessions, written: SessionState) -> Self {
        Self {
            lease,
            sessions,
            session: Arc::new(Mutex::new(written)),
        }
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(super) async fn is_lost(&self) -> bool {
        self.session.lock().await.is_lost
    }

    /// Notes that the journal has taken over the run of a lost process.
    pub(super) async fn take_over(&self) {
        self.session.lock().await.is_lost = false;
    }

    /// Notes that the journal has not gone on with the run.
    pub(super) async fn give_back(&self) {
        let mut session = self.session.lock().await;
        session.is_lost = session.was_lost;
    }

    /// Stores that a journal will know which of the open calls were started, before the first one
    /// is.
    pub(super) async fn note_journal(&self) -> Result<(), StoreError> {
        if self.lease.is_over() {
            return Ok(());
        }
        // Without open calls there is nothing to agree on, and no write to pay for.
        let note = |claim: &mut Claim| {
            let is_new = claim.resumes && !claim.is_journaled;
            claim.is_journaled |= is_new;
            is_new
        };
        self.lease.change(note).await
    }

    /// Writes the conversation and the state of a run that has ended, and gives the session up.
    pub(super) async fn finish(
        &self,
        checkpoint: &Checkpoint,
        state: Map<String, Value>,
    ) -> Result<(), StoreError> {
        let session = self.session.lock().await;
        if session.is_lost {
            // No journal took the run over, so the calls that the previous process may have started
            // are still unknown. The session stays as that process left it, free for the next try.
            return self.lease.leave().await;
        }
        let draft = Draft::new(&session.entries, checkpoint, state, session.run.clone());
        let stored = self.lease.end(draft.record()?).await?;
        self.sessions
            .keep(self.lease.key(), draft.known(&self.lease, stored));
        Ok(())
    }
}
