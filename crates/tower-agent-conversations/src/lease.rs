//! `Lease: a conversation that a run has`
//!
//! One rule for every policy: a run claims its conversation by a write before anything runs, a task
//! renews the claim, and only the run that has it writes. A renewal or a write that meets another
//! version has lost the conversation: the run's own [lease](tower_agent::context::Lease) ends, so
//! that it starts no more calls.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tokio_util::sync::CancellationToken;
use tower_agent::context::Lease as RunLease;

use crate::busy::Writing;
use crate::cache::{Entries, Known};
use crate::error::StoreError;
use crate::head::{Claim, Format, Head};
use crate::key::ConversationKey;
use crate::store::{Append, BoxStore};
use crate::time::{now, time};

/// The lease of a run, if nobody sets another one.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The shortest time between two renewals.
const LEAST: Duration = Duration::from_millis(100);

/// A write of a run to its conversation.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    body: Arc<RawValue>,
    /// The number of entries that stay.
    from: usize,
    /// The new entries.
    entries: Vec<String>,
    is_waiting: bool,
}

impl Record {
    pub(crate) fn new(
        body: &impl Serialize,
        from: usize,
        entries: Vec<String>,
        is_waiting: bool,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            body: serde_json::value::to_raw_value(body)
                .map_err(StoreError::data)?
                .into(),
            from,
            entries,
            is_waiting,
        })
    }
}

/// The settings of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) format: Format,
    pub(crate) lease: Duration,
    pub(crate) ttl: Option<Duration>,
}

impl Terms {
    /// Returns the end of a lease that begins now, in milliseconds since 1970.
    pub(crate) fn until(self) -> i64 {
        let lease = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        now().saturating_add(lease)
    }
}

/// A stored conversation, as a run knows it that writes to it.
#[derive(Clone)]
pub(crate) struct Stored {
    /// 0 without one.
    pub(crate) version: u64,
    /// The number of entries.
    pub(crate) length: usize,
    /// Names the entries.
    pub(crate) entries: Arc<str>,
}

impl Stored {
    /// Returns what a load has found.
    pub(crate) fn of<E: Entries, B>(known: Option<&Known<E, B>>) -> Self {
        match known {
            Some(known) => Self {
                version: known.version,
                length: known.entries.count(),
                entries: known.head.entries.clone(),
            },
            None => Self {
                version: 0,
                length: 0,
                entries: new_name(),
            },
        }
    }
}

fn new_name() -> Arc<str> {
    uuid::Uuid::new_v4().to_string().into()
}

/// A conversation that a run has, until this is dropped. Clones share it.
#[derive(Clone)]
pub(crate) struct Lease(Arc<HeldLease>);

/// A conversation that a run has claimed, and gives up if this is dropped before it begins.
pub(crate) struct Claimed {
    lease: Lease,
    has_begun: bool,
}

struct HeldLease {
    leased: Arc<Leased>,
    /// Cancelled when this is dropped, and when the run has ended.
    over: CancellationToken,
}

struct Leased {
    store: BoxStore,
    key: ConversationKey,
    terms: Terms,
    /// Names this run among all that write to the conversation. Not the run's id, which a second
    /// process may have at the same time.
    name: Arc<str>,
    /// Locked during a write, so that writes take turns.
    written: Mutex<LastWrite>,
    /// The run's own view of the lease.
    run: RunLease,
    /// Cancelled when another run has got the conversation.
    lost: CancellationToken,
}

/// The conversation as the run has written it last.
struct LastWrite {
    stored: Stored,
    claim: Claim,
    body: Arc<RawValue>,
    is_waiting: bool,
    /// Nothing was written yet.
    is_first: bool,
    has_ended: bool,
}

impl Lease {
    /// Claims the conversation, as it is known, by writing it. A conflict means that another run
    /// was faster.
    ///
    /// In a task, as a write that is dropped halfway may still be made.
    pub(crate) async fn claim(
        store: BoxStore,
        key: ConversationKey,
        terms: Terms,
        known: Stored,
        claim: Claim,
        record: Record,
        run: RunLease,
    ) -> Result<Claimed, StoreError> {
        let leased = Arc::new(Leased {
            store,
            key,
            terms,
            name: new_name(),
            written: Mutex::new(LastWrite {
                stored: known,
                claim,
                body: record.body.clone(),
                is_waiting: record.is_waiting,
                is_first: true,
                has_ended: false,
            }),
            run,
            lost: CancellationToken::new(),
        });
        let (send, claimed) = oneshot::channel();
        let writing = leased.writing();
        let work = async move {
            let written = {
                let mut written = leased.written.lock().await;
                leased.write(&mut written, record, true).await
            };
            let over = CancellationToken::new();
            let claimed = written.map(|()| Claimed {
                lease: Self(Arc::new(HeldLease { leased, over })),
                has_begun: false,
            });
            // If the caller is gone, the claim is dropped here, which gives the conversation up.
            drop(send.send(claimed));
            drop(writing);
        };
        // Without a task if nothing has to wait, as in memory.
        let mut work = Box::pin(work);
        if (&mut work).now_or_never().is_none() {
            match Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(work)),
                Err(_) => work.await,
            }
        }
        claimed.await.unwrap_or_else(|_| Err(shut_down()))
    }

    /// Returns a token that is cancelled when another run has got the conversation.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.0.leased.lost
    }

    /// Returns whether the run has ended, or has given the conversation up.
    pub(crate) fn is_over(&self) -> bool {
        self.0.over.is_cancelled()
    }

    /// Ends the renewals. The next write is the last one.
    pub(crate) fn stop_renewing(&self) {
        self.0.over.cancel();
    }

    /// Writes the progress of the run, which goes on.
    pub(crate) async fn write(&self, record: Record) -> Result<(), StoreError> {
        let mut written = self.0.leased.written.lock().await;
        self.0.leased.write(&mut written, record, true).await
    }

    /// Writes the end of the run, and gives the conversation up. Returns what is stored then.
    pub(crate) async fn end(&self, record: Record) -> Result<Stored, StoreError> {
        self.stop_renewing();
        let leased = &self.0.leased;
        let mut written = leased.written.lock().await;
        if !written.has_ended {
            leased.write(&mut written, record, false).await?;
        }
        Ok(written.stored.clone())
    }

    /// Makes a write in a task, also if the returned future, which waits for it, is dropped: then
    /// an error goes to the log.
    pub(crate) fn in_task<W: Future<Output = Result<(), StoreError>> + Send + 'static>(
        &self,
        runtime: &Handle,
        write: W,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<W> {
        let (send, written) = oneshot::channel();
        let writing = self.0.leased.writing();
        let key = self.key().clone();
        runtime.spawn(async move {
            let result = write.await;
            drop(writing);
            if let Err(Err(error)) = send.send(result) {
                log_failure(&key, &error);
            }
        });
        async { written.await.unwrap_or_else(|_| Err(shut_down())) }
    }

    /// Returns the key of the conversation.
    pub(crate) fn key(&self) -> &ConversationKey {
        &self.0.leased.key
    }

    /// Returns the name of this run among all that write to the conversation.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0.leased.name
    }

    /// Writes what was written last, without the claim: nothing has run.
    async fn give_up(&self) -> Result<(), StoreError> {
        let record = self.0.leased.written.lock().await.again();
        self.end(record).await.map(drop)
    }

    /// Changes the claim, and writes it if the function says that there is something to write.
    pub(crate) async fn change(
        &self,
        change: impl FnOnce(&mut Claim) -> bool + Send,
    ) -> Result<(), StoreError> {
        let mut written = self.0.leased.written.lock().await;
        if !change(&mut written.claim) {
            return Ok(());
        }
        let record = written.again();
        self.0.leased.write(&mut written, record, true).await
    }

    /// Leaves the claim as it is, but over: for a run that must not go on, and whose conversation
    /// the next run takes as that of a lost process.
    pub(crate) async fn leave(&self) -> Result<(), StoreError> {
        self.stop_renewing();
        let mut written = self.0.leased.written.lock().await;
        let record = written.again();
        let claim = Claim {
            until: 0,
            ..written.claim.clone()
        };
        let leased = &self.0.leased;
        leased.put(&mut written, record, Some(claim)).await?;
        leased.run.release();
        Ok(())
    }
}

impl Claimed {
    /// Begins the run. From here on its progress is written by whoever has the lease.
    pub(crate) fn begin(mut self) -> Lease {
        self.has_begun = true;
        let HeldLease { leased, over } = &*self.lease.0;
        // In a task, so that a run that is not polled keeps its conversation. Outside a runtime
        // nothing renews the lease.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(renew(leased.clone(), over.clone()));
        }
        self.lease.clone()
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.has_begun {
            return;
        }
        let lease = self.lease.clone();
        let writing = lease.0.leased.writing();
        let mut give_up = Box::pin(async move {
            if let Err(error) = lease.give_up().await {
                log_failure(lease.key(), &error);
            }
            drop(writing);
        });
        // At once if possible: there may be no runtime.
        if (&mut give_up).now_or_never().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(give_up);
        }
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.over.cancel();
    }
}

impl LastWrite {
    /// Returns the record that writes the same again.
    fn again(&self) -> Record {
        Record {
            body: self.body.clone(),
            from: self.stored.length,
            entries: Vec::new(),
            is_waiting: self.is_waiting,
        }
    }
}

impl Leased {
    /// Notes a write to the conversation, until the guard is dropped: the next run in this process
    /// waits for it.
    fn writing(&self) -> Writing {
        self.store.busy().write(self.key.clone())
    }

    async fn write(
        &self,
        written: &mut LastWrite,
        record: Record,
        goes_on: bool,
    ) -> Result<(), StoreError> {
        if !goes_on {
            self.put(written, record, None).await?;
            written.has_ended = true;
            // A layer outside may call the agent again, however late.
            self.run.release();
            return Ok(());
        }
        let until = self.terms.until();
        let claim = Claim {
            until,
            ..written.claim.clone()
        };
        self.put(written, record, Some(claim)).await?;
        self.run.renew(time(until));
        Ok(())
    }

    /// Writes this, if the run has the conversation.
    async fn put(
        &self,
        written: &mut LastWrite,
        record: Record,
        claim: Option<Claim>,
    ) -> Result<(), StoreError> {
        let entries = if record.from < written.stored.length {
            new_name()
        } else {
            written.stored.entries.clone()
        };
        let head = Head::new(
            self.terms.format,
            self.name.clone(),
            entries.clone(),
            claim.clone(),
            &*record.body,
        );
        let leased_until = claim.as_ref().map(|claim| time(claim.until));
        let ttl = self.terms.ttl;
        let expires_at = ttl.and_then(|ttl| SystemTime::now().checked_add(ttl));
        let append = Append::new(head.write()?, record.from)
            .entries(record.entries)
            .kind(self.terms.format.kind)
            .waiting(record.is_waiting)
            .leased_until(leased_until)
            .expires_at(expires_at);
        let length = append.from + append.entries.len();
        // Kept for another try, but not of the first write: nothing can have been lost before it,
        // and it may have all that a client has sent.
        let again = (!written.is_first).then(|| append.clone());
        let put = self.store.append(&self.key, written.stored.version, append);
        let version = match (put.await, again) {
            // An earlier write of this run may have been made although its answer was lost. Without
            // this look, the run would take itself for another one and lose its conversation.
            (Err(error), Some(append)) if error.is_conflict() => match self.own().await? {
                // The last write of a run is the only one without a claim: it was this one.
                Some((version, false)) if claim.is_none() => Ok(version),
                // Written again from the same entry on, whatever the lost write has added.
                Some((version, _)) => self.store.append(&self.key, version, append).await,
                None => Err(error),
            },
            (put, _) => put,
        };
        let version = match version {
            Err(error) if error.is_conflict() => {
                self.run.end();
                self.lost.cancel();
                return Err(error);
            }
            version => version?,
        };
        *written = LastWrite {
            stored: Stored {
                version,
                length,
                entries,
            },
            claim: claim.unwrap_or_else(|| written.claim.clone()),
            body: record.body,
            is_waiting: record.is_waiting,
            is_first: false,
            has_ended: false,
        };
        Ok(())
    }

    /// Returns the version that is stored, if this run was the last to write it, and whether it has
    /// the claim.
    async fn own(&self) -> Result<Option<(u64, bool)>, StoreError> {
        let Some(stored) = self.store.load(&self.key, usize::MAX).await? else {
            return Ok(None);
        };
        let head = Head::<IgnoredAny>::read(&stored.head, self.terms.format)?;
        let is_own = head.writer == self.name;
        Ok(is_own.then_some((stored.version, head.claim.is_some())))
    }
}

fn shut_down() -> StoreError {
    StoreError::database("the runtime is shutting down")
}

/// Logs that the progress of a run was not written, where nobody waits for it.
pub(crate) fn log_failure(key: &ConversationKey, error: &StoreError) {
    tracing::error!(conversation = ?key.id, error = %error.to_string().escape_debug(), "failed to store the progress of a run");
}

async fn renew(leased: Arc<Leased>, over: CancellationToken) {
    // Half of it leaves time for one more try after a renewal has failed.
    let every = (leased.terms.lease / 2).max(LEAST);
    while over
        .run_until_cancelled(tokio::time::sleep(every))
        .await
        .is_some()
    {
        let mut written = leased.written.lock().await;
        // The end of the run may have been written while this task waited for the lock. A renewal
        // after it would lock the conversation again.
        if over.is_cancelled() || written.has_ended {
            return;
        }
        let record = written.again();
        match leased.write(&mut written, record, true).await {
            Err(error) if error.is_conflict() => return,
            // The lease lasts for another try. If it ends meanwhile, the run starts no more calls.
            Err(error) => {
                tracing::warn!(conversation = ?leased.key.id, error = %error.to_string().escape_debug(), "failed to renew the lease of a conversation")
            }
            Ok(()) => {}
        }
    }
}
