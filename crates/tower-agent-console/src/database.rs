//! The database behind a console: a task that writes the runs that have ended, and questions to it
//! that nobody waits for too long.

use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tower_agent::error::{Error, ErrorKind, Result};

use crate::address::without_nul;
use crate::collect::{Change, Collector};
use crate::lock::lock;
use crate::record::{EntryKind, Run, ShownEntry, micros};
use crate::store::Limits;
use crate::stored::{RunStore, StoredBounds, StoredEntry, StoredHead, StoredKey, StoredRun};

/// How long somebody who looks waits for the database.
const LOOK: Duration = Duration::from_secs(1);

/// How long it is not asked again after it did not answer, so that one who looks around waits once.
const AWAY: Duration = Duration::from_secs(5);

/// How long an operation that must not be done by halves waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after a write that has failed, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The number of entries, with their calls, that are read at once.
const AT_ONCE: u32 = 500;

/// The longest time between two looks for what is too old.
const TRIM: Duration = Duration::from_secs(60);

/// The database of a console.
pub(crate) struct Database {
    pub(crate) store: Arc<dyn RunStore>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// The number of the run that is being written.
    writing: watch::Sender<Option<u64>>,
    away_until: Mutex<Option<Instant>>,
}

impl Database {
    pub(crate) fn new(store: Arc<dyn RunStore>) -> Arc<Self> {
        Arc::new(Self {
            store,
            task: Mutex::default(),
            writing: watch::Sender::default(),
            away_until: Mutex::default(),
        })
    }

    /// Starts the task that writes, unless it runs: one may have ended with its runtime. Without a
    /// runtime it starts when somebody looks.
    pub(crate) fn start(self: &Arc<Self>, collector: &Arc<Collector>) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let mut task = lock(&self.task);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let changed = collector.changed.subscribe();
        let writing = write(self.clone(), Arc::downgrade(collector), changed);
        *task = Some(runtime.spawn(writing));
    }

    /// Asks for what somebody looks at.
    pub(crate) async fn look<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let away_until = *lock(&self.away_until);
        if away_until.is_some_and(|until| Instant::now() < until) {
            return Err(silent());
        }
        let answer = timeout(LOOK, answer)
            .await
            .unwrap_or_else(|_| Err(silent()));
        if let Err(error) = &answer {
            tracing::warn!(%error, "the runs in the database of the console cannot be shown");
            *lock(&self.away_until) = Some(Instant::now() + AWAY);
        }
        answer
    }

    /// Asks for what must not be done by halves.
    pub(crate) async fn insist<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        timeout(PATIENCE, answer)
            .await
            .unwrap_or_else(|_| Err(silent()))
    }

    /// Returns the entries of a run, with the calls as a whole.
    pub(crate) async fn calls(&self, key: &StoredKey) -> Result<Vec<StoredEntry>> {
        let mut entries = Vec::new();
        loop {
            let from = u32::try_from(entries.len()).unwrap_or(u32::MAX);
            let read = self.store.calls(key, from, AT_ONCE);
            let page = self.insist(read).await?;
            if page.is_empty() {
                return Ok(entries);
            }
            entries.extend(page);
        }
    }

    /// Waits until no run is being written that is no longer in memory: what was removed from there
    /// would come into the database behind its removal.
    pub(crate) async fn not_writing(&self, collector: &Collector) -> Result<()> {
        let mut writing = self.writing.subscribe();
        let waited = self.insist(async {
            loop {
                // Copied: the writer marks a run under the lock that is taken here next.
                let now = *writing.borrow_and_update();
                let is_here = |number| lock(&collector.store).runs.contains_key(&number);
                if now.is_none_or(is_here) {
                    return Ok(());
                }
                // The sender is in `self`.
                let _ = writing.changed().await;
            }
        });
        waited.await
    }

    /// Waits until every run is written, for as long as a patient one does.
    pub(crate) async fn all_written(&self, collector: &Collector) {
        let mut writing = self.writing.subscribe();
        let all_written = async {
            while lock(&collector.store).count_unwritten() > 0 {
                let _ = writing.changed().await;
            }
        };
        let _ = timeout(PATIENCE, all_written).await;
    }

    /// Forgets the runs that are in memory and no longer in the database: another process has
    /// removed them, or they were too many there.
    pub(crate) async fn forget_removed(&self, collector: &Collector) -> Result<()> {
        let (numbers, key) = {
            let store = lock(&collector.store);
            (store.all_written(), store.key(0))
        };
        let Some(first) = numbers.first() else {
            return Ok(());
        };
        let kept = self.look(self.store.numbers(&key.console, *first)).await?;
        let mut store = lock(&collector.store);
        let still_written = store.all_written();
        for number in numbers {
            if !kept.contains(&number) && still_written.contains(&number) {
                store.remove(number);
            }
        }
        Ok(())
    }

    /// Takes the next run that is to be written, behind this number. It is being written until the
    /// mark is dropped.
    fn next(
        &self,
        collector: &Weak<Collector>,
        after: u64,
    ) -> Option<(StoredRun, u64, Writing<'_>)> {
        let collector = collector.upgrade()?;
        let mut store = lock(&collector.store);
        let (run, key, is_whole) = store.unwritten(after)?;
        let number = key.number;
        let version = run.summary.version;
        let stored = stored(run, key, is_whole);
        // Under the lock: whoever removes the run from memory sees that it is being written.
        self.writing.send_replace(Some(number));
        Some((stored, version, Writing(&self.writing)))
    }

    /// Writes what is not written, each run once. Returns how many runs were written, and the error
    /// of one that was not.
    async fn write_all(&self, collector: &Weak<Collector>) -> (u64, Option<Error>) {
        let (mut written, mut failure) = (0, None);
        let mut after = 0;
        while let Some((run, version, writing)) = self.next(collector, after) {
            after = run.head.key.number;
            match self.store.put(run).await {
                Ok(()) => {
                    written += 1;
                    if let Some(collector) = collector.upgrade() {
                        lock(&collector.store).written(after, version);
                    }
                }
                Err(error) => failure = Some(error),
            }
            drop(writing);
        }
        (written, failure)
    }
}

/// The mark of a run that is being written.
struct Writing<'a>(&'a watch::Sender<Option<u64>>);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}

/// Writes until the console is gone.
async fn write(
    database: Arc<Database>,
    collector: Weak<Collector>,
    mut changed: watch::Receiver<Change>,
) {
    let mut pause = PAUSE.0;
    let mut untrimmed = 0;
    // At first as well: runs may have become too old since the process before.
    let mut trim_at = Instant::now();
    loop {
        changed.mark_unchanged();
        let Some(limits) = limits(&collector) else {
            return;
        };
        let (written, failure) = database.write_all(&collector).await;
        untrimmed += written;
        // Of a hundred, one may be too many: to count them all costs more than a write.
        if untrimmed > limits.runs as u64 / 100 || Instant::now() >= trim_at {
            if let Err(error) = database.store.trim(bounds(limits)).await {
                tracing::warn!(%error, "old runs of the console are not deleted");
            }
            untrimmed = 0;
            trim_at = Instant::now() + TRIM;
        }
        if let Some(error) = failure {
            tracing::warn!(%error, "runs of the console are not stored, and tried again");
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
            continue;
        }
        pause = PAUSE.0;
        if let Ok(Err(_)) = timeout(TRIM, changed.changed()).await {
            return;
        }
    }
}

fn limits(collector: &Weak<Collector>) -> Option<Limits> {
    Some(lock(&collector.upgrade()?.store).limits)
}

fn bounds(limits: Limits) -> StoredBounds {
    let oldest = limits
        .age
        .and_then(|age| SystemTime::now().checked_sub(age));
    StoredBounds {
        runs: limits.runs as u64,
        bytes: limits.bytes as u64,
        oldest: oldest.map_or(0, micros),
    }
}

/// The error of a database that does not answer in time.
fn silent() -> Error {
    Error::new(
        ErrorKind::Store,
        "the database of the console does not answer; try again when it does",
    )
}

/// Returns a run for the database.
fn stored(run: &mut Run, key: StoredKey, is_whole: bool) -> StoredRun {
    let Run {
        summary,
        entries,
        said,
        ..
    } = run;
    let entries = entries.iter().map(|entry| {
        let whole = entry.content.kept.as_deref();
        let whole = whole.map(|kept| said.save(entry.n, kept));
        let is_tool = matches!(entry.kind, EntryKind::Tool { .. });
        let call = entry.call.as_deref().filter(|_| is_tool);
        StoredEntry {
            entry: json!(ShownEntry::from(entry)).to_string(),
            call: call.map(without_nul),
            texts: (entry.content.texts_len() > 0).then(|| entry.content.json().to_string()),
            whole: whole.and_then(|whole| match whole {
                Ok(whole) => Some(whole),
                Err(error) => {
                    tracing::warn!(%error, "a call in the console cannot be stored as a whole");
                    None
                }
            }),
        }
    });
    let entries = entries.collect();
    let mut shown = json!(summary);
    shown["is_whole"] = is_whole.into();
    StoredRun {
        head: StoredHead {
            key,
            id: without_nul(&summary.id),
            agent: without_nul(&summary.agent),
            status: summary.status.name().to_owned(),
            begun: summary.begun,
            ended: summary.ended.unwrap_or(summary.begun),
            user: summary.user.as_deref().map(without_nul),
            summary: shown.to_string(),
        },
        entries,
    }
}
