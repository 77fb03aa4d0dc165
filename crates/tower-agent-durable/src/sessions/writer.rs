use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tower_agent::Checkpoint;
use tower_agent::message::Messages;

use super::format::{Claim, Head, common, read_entries, settled, write_entries};
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
    /// Whether the run may start calls that were open before it.
    pub(super) resumes: bool,
    /// The run's id.
    pub(super) run: Arc<str>,
    /// Whether a journal knows which of these calls the run has started.
    pub(super) is_journaled: bool,
    /// What a run whose process has died has left to this one, which is the same run, until its
    /// journal has taken it over.
    pub(super) lost: Option<Progress>,
}

/// What a run writes.
#[derive(Clone)]
pub(super) struct Progress {
    pub(super) checkpoint: Checkpoint,
    pub(super) state: Map<String, Value>,
}

impl<S: SessionStore> Writer<S> {
    /// Writes the progress of the run, and has the session for another lease.
    pub(super) async fn claim(&mut self, progress: &Progress) -> Result<(), StoreError> {
        let lease = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        self.write(
            progress,
            Some(self.claim_until(now().saturating_add(lease))),
        )
        .await
    }

    fn claim_until(&self, until: i64) -> Claim {
        let (resumes, is_journaled) = (self.resumes, self.is_journaled);
        Claim {
            until,
            resumes,
            run: Some(self.run.clone()),
            is_journaled,
        }
    }

    /// Writes what the run has left, and gives the session up.
    pub(super) async fn finish(&mut self, progress: &Progress) -> Result<(), StoreError> {
        match self.lost.clone() {
            // It has not been made again: what it may have started is still unknown.
            Some(lost) => self.write(&lost, Some(self.claim_until(0))).await,
            None => self.write(progress, None).await,
        }
    }

    async fn write(&mut self, progress: &Progress, claim: Option<Claim>) -> Result<(), StoreError> {
        match self.try_write(progress, claim.clone()).await {
            // An earlier write of this run may have come through although it failed.
            Err(error) if error.is_conflict() => match self.adopt().await? {
                Some(head) if head.claim.is_none() && claim.is_none() => Ok(()),
                Some(_) => self.try_write(progress, claim).await,
                None => Err(error),
            },
            written => written,
        }
    }

    /// Takes the session as it is stored, if this run was the last to write to it.
    async fn adopt(&mut self) -> Result<Option<Head>, StoreError> {
        let Some(stored) = self.store.load(&self.key).await? else {
            return Ok(None);
        };
        let head = Head::read(&stored.head)?;
        if head.writer != self.name {
            return Ok(None);
        }
        (self.version, self.entries) = (stored.version, read_entries(&stored)?);
        Ok(Some(head))
    }

    async fn try_write(
        &mut self,
        progress: &Progress,
        claim: Option<Claim>,
    ) -> Result<(), StoreError> {
        let Progress { checkpoint, state } = progress;
        let messages = &checkpoint.messages;
        let same = common(&self.entries, messages);
        let stays = settled(messages, same);
        let entries = write_entries(messages, same..stays)?;
        let mut head = checkpoint.clone();
        head.messages = messages.range(stays).cloned().collect();
        let head = Head::new(head, state.clone(), self.name.clone(), claim).write()?;
        let expires_at = self.ttl.and_then(|ttl| SystemTime::now().checked_add(ttl));
        let append = Append::new(head, same)
            .entries(entries)
            .expires_at(expires_at);
        self.version = self.store.append(&self.key, self.version, append).await?;
        self.entries = messages.clone();
        self.entries.truncate(stays);
        Ok(())
    }
}
