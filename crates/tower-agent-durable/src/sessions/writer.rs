use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tower_agent::Checkpoint;
use tower_agent::message::Messages;

use super::format::{Claim, SessionHead, common, read_entries, settled, write_entries};
use super::key::SessionKey;
use super::store::{Append, SessionStore};
use crate::error::StoreError;
use crate::time::now;

/// Writes the session of one run.
pub(super) struct Writer<S> {
    pub(super) store: Arc<S>,
    pub(super) key: SessionKey,
    pub(super) ttl: Option<Duration>,
    pub(super) lease: Duration,
    /// Names this run among all that write to the session.
    pub(super) name: Arc<str>,
    /// The version that is stored.
    pub(super) version: u64,
    /// The messages that are stored as entries.
    pub(super) entries: Messages,
    /// The time at which the request was accepted.
    pub(super) since: i64,
    /// The run may start calls that were open before it.
    pub(super) resumes: bool,
    /// The run's id.
    pub(super) run: Arc<str>,
    /// A journal knows which of these calls the run has started.
    pub(super) is_journaled: bool,
    /// The previous process of this run was lost, and no journal has taken the run over.
    pub(super) is_lost: bool,
    /// The conversation with the request, until the run has ended.
    pub(super) checkpoint: Checkpoint,
    /// The session's state.
    pub(super) state: Map<String, Value>,
}

impl<S: SessionStore> Writer<S> {
    /// Writes the session, and has it for another lease.
    pub(super) async fn claim(&mut self) -> Result<(), StoreError> {
        let lease = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        let claim = self.claim_until(now().saturating_add(lease));
        self.write(Some(claim)).await
    }

    fn claim_until(&self, until: i64) -> Claim {
        Claim {
            until,
            since: self.since,
            resumes: self.resumes,
            run: Some(self.run.clone()),
            is_journaled: self.is_journaled,
        }
    }

    /// Writes the conversation and the state of a run that has ended, and gives the session up.
    pub(super) async fn finish(
        &mut self,
        checkpoint: Checkpoint,
        state: Map<String, Value>,
    ) -> Result<(), StoreError> {
        if self.is_lost {
            // No journal took the run over, so the calls that the previous process may have started
            // are still unknown. The session stays as that process left it, free for the next try.
            return self.write(Some(self.claim_until(0))).await;
        }
        self.checkpoint = checkpoint;
        self.state = state;
        self.write(None).await
    }

    async fn write(&mut self, claim: Option<Claim>) -> Result<(), StoreError> {
        match self.try_write(claim.clone()).await {
            // An earlier write of this run may have been written although its answer was lost.
            // Without this look, the run would take itself for another one and lose its session.
            Err(error) if error.is_conflict() => match self.adopt().await? {
                // The last write of a run is the only one without a claim: it was this one.
                Some(head) if head.claim.is_none() && claim.is_none() => Ok(()),
                Some(_) => self.try_write(claim).await,
                None => Err(error),
            },
            written => written,
        }
    }

    /// Takes the session as it is stored, if this run was the last to write to it.
    async fn adopt(&mut self) -> Result<Option<SessionHead>, StoreError> {
        let Some(stored) = self.store.load(&self.key).await? else {
            return Ok(None);
        };
        let head = SessionHead::read(&stored.head)?;
        if head.writer != self.name {
            return Ok(None);
        }
        self.entries = read_entries(&stored)?;
        self.version = stored.version;
        Ok(Some(head))
    }

    async fn try_write(&mut self, claim: Option<Claim>) -> Result<(), StoreError> {
        let Checkpoint { head, messages } = &self.checkpoint;
        // A settled message is written once, as an entry; the head, which is written each time, has
        // only those that may still change. So the cost of a write does not grow with the
        // conversation.
        let same = common(&self.entries, messages);
        let stays = settled(messages, same);
        let entries = write_entries(messages, same..stays)?;
        let open = messages.range(stays).cloned().collect();
        let is_waiting = !head.interrupts.is_empty();
        let head = SessionHead::new(
            head.clone(),
            open,
            self.state.clone(),
            self.name.clone(),
            claim,
        );
        let expires_at = self.ttl.and_then(|ttl| SystemTime::now().checked_add(ttl));
        let append = Append::new(head.write()?, same)
            .entries(entries)
            .waiting(is_waiting)
            .expires_at(expires_at);
        self.version = self.store.append(&self.key, self.version, append).await?;
        // Only after the write: a failed one leaves the writer as the store is.
        self.entries = messages.clone();
        self.entries.truncate(stays);
        Ok(())
    }
}
