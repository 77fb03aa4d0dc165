use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Mutex, oneshot};
use tower_agent::error::BoxError;

use crate::key::ThreadKey;
use crate::saving::Saving;
use crate::store::BoxStore;
use crate::thread::Thread;
use crate::time::{millis, now};

/// The shortest time between two renewals.
const LEAST: Duration = Duration::from_millis(100);

/// Returns the end of a lease that begins now.
pub(crate) fn until(lease: Duration) -> u64 {
    now().saturating_add(millis(lease))
}

/// The thread of a run, which has it until the lease ends. It is renewed until this is dropped.
pub(crate) struct Lease {
    leased: Arc<Leased>,
    /// Dropped to end the renewal.
    _over: oneshot::Sender<()>,
}

struct Leased {
    store: BoxStore,
    key: ThreadKey,
    /// The name of the run.
    name: Arc<str>,
    lease: Duration,
    /// The thread as the run has saved it last. Locked during a save, so that saves take turns.
    latest: Mutex<Thread>,
}

impl Lease {
    pub(crate) fn new(
        store: BoxStore,
        key: ThreadKey,
        name: Arc<str>,
        lease: Duration,
        claimed: Thread,
    ) -> Self {
        let leased = Arc::new(Leased {
            store,
            key,
            name,
            lease,
            latest: Mutex::new(claimed),
        });
        let (over, is_over) = oneshot::channel();
        // In a task, so that a run keeps its thread while its client does not read.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(renew(leased.clone(), is_over));
        }
        Self {
            leased,
            _over: over,
        }
    }

    /// Returns the save of the thread as the run has left it.
    pub(crate) fn save(&self, thread: Thread) -> Saving {
        let leased = self.leased.clone();
        self.leased.store.saving(async move {
            let mut latest = leased.latest.lock().await;
            leased.save(&mut latest, thread).await
        })
    }
}

async fn renew(leased: Arc<Leased>, mut is_over: oneshot::Receiver<()>) {
    // Half of it leaves time for one more try after a renewal has failed.
    let every = (leased.lease / 2).max(LEAST);
    while tokio::time::timeout(every, &mut is_over).await.is_err() {
        let mut latest = leased.latest.lock().await;
        // The run has ended. A renewal would lock its thread again.
        if latest.running.is_none() {
            return;
        }
        let thread = latest.clone();
        if let Err(error) = leased.save(&mut latest, thread).await {
            // The lease lasts for another try. If it ends meanwhile, the next save of the run says
            // so.
            tracing::warn!(error = %error.to_string().escape_debug(), "failed to renew the lease of a thread");
        }
    }
}

impl Leased {
    async fn save(&self, latest: &mut Thread, mut thread: Thread) -> Result<(), BoxError> {
        thread.version = latest.version;
        if let Some(running) = &mut thread.running {
            running.until = until(self.lease);
        }
        let mut saved = self.store.save(&self.key, thread.clone()).await?;
        if saved.is_none() && self.has_saved(latest.version + 1).await? {
            thread.version = latest.version + 1;
            saved = self.store.save(&self.key, thread.clone()).await?;
        }
        let Some(version) = saved else {
            return Err("the thread was changed or removed during the run".into());
        };
        thread.version = version;
        *latest = thread;
        Ok(())
    }

    /// Returns whether this run has saved the version: the answer of a save may have been lost.
    async fn has_saved(&self, version: u64) -> Result<bool, BoxError> {
        let stored = self.store.load(&self.key).await?;
        let stored = stored.filter(|stored| stored.version == version);
        Ok(stored.is_some_and(|stored| stored.runs.last() == Some(&self.name)))
    }
}
