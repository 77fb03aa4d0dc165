//! The database behind a console: a task that writes runs, and questions to it that nobody waits
//! for too long.

use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tower_agent::error::{Error, ErrorKind, Result};

use crate::address::without_nul;
use crate::audit::Audit;
use crate::collect::{Change, Collector};
use crate::lock::lock;
use crate::record::{Entry, EntryKind, Run, ShownEntry, Status, StoredMark, micros};
use crate::saved::Said;
use crate::store::{BATCH, Limits, PACE};
use crate::stored::{RunStore, StoredBounds, StoredEntry, StoredHead, StoredKey, StoredRun};

/// The time that somebody who looks waits for what is elsewhere, such as the database.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// The time for which it is not asked again after it did not answer, so that one who looks around
/// waits once.
const AWAY: Duration = Duration::from_secs(5);

/// The time that an operation which must not be done by halves waits for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after a write that has failed, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The number of entries, with their calls, that are read at once.
const AT_ONCE: u32 = 500;

/// The number of rows of the audit in the database.
const AUDIT: u64 = 100_000;

/// The bytes of texts, about, after which no more is written at once.
const BATCH_BYTES: usize = 1 << 20;

/// The longest time between two looks for what is too old.
const TRIM: Duration = Duration::from_secs(60);

/// The database of a console.
pub(crate) struct Database {
    pub(crate) store: Arc<dyn RunStore>,
    audit: Arc<Audit>,
    task: Mutex<Option<JoinHandle<()>>>,
    /// The number of the run that is being written.
    writing: watch::Sender<Option<u64>>,
    away_until: Mutex<Option<Instant>>,
}

impl Database {
    pub(crate) fn new(store: Arc<dyn RunStore>, audit: Arc<Audit>) -> Arc<Self> {
        Arc::new(Self {
            store,
            audit,
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

    /// Writes who has done what since it was written last. Returns the error of what was not.
    async fn write_audit(&self) -> Option<Error> {
        loop {
            let rows = self.audit.unwritten();
            let number = rows.last()?.place.key.number;
            if let Err(error) = self.store.audit(rows).await {
                return Some(error);
            }
            self.audit.written(number);
            // For those who wait until all is written.
            self.writing.send_replace(None);
        }
    }

    /// Waits until everything is written, for as long as a patient one does.
    pub(crate) async fn all_written(&self, collector: &Collector) {
        let mut writing = self.writing.subscribe();
        let all_written = async {
            while lock(&collector.store).count_unwritten() + self.audit.count_unwritten() > 0 {
                // The sender is in `self`.
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

    /// Takes what is new of the next run that is to be written, behind this number.
    fn next(&self, collector: &Weak<Collector>, after: u64) -> Option<Batch<'_>> {
        let collector = collector.upgrade()?;
        let mut store = lock(&collector.store);
        let (run, key, is_whole) = store.unwritten(after)?;
        let number = key.number;
        let (run, mark) = stored(run, key, is_whole);
        // Under the lock: whoever removes the run from memory sees that it is being written.
        self.writing.send_replace(Some(number));
        Some(Batch {
            run,
            mark,
            _writing: Writing(&self.writing),
        })
    }

    /// Writes what is to be written now. Returns how many runs were begun or ended with it, and the
    /// error of one that was not written.
    async fn write_all(&self, collector: &Weak<Collector>) -> (u64, Option<Error>) {
        let mut written = 0;
        let mut failure = None;
        let mut after = 0;
        while let Some(batch) = self.next(collector, after) {
            let number = batch.run.head.key.number;
            let is_new = batch.run.is_new;
            // The rest of one of which this is a part comes next.
            after = if batch.mark.is_part { after } else { number };
            match self.store.put(batch.run).await {
                Ok(is_kept) => {
                    written += u64::from(is_new);
                    let Some(collector) = collector.upgrade() else {
                        continue;
                    };
                    let mut store = lock(&collector.store);
                    if is_kept {
                        store.written(number, batch.mark);
                    } else {
                        // It was removed by another process, or to make room.
                        store.remove(number);
                    }
                }
                Err(error) => {
                    after = number;
                    failure = Some(error);
                }
            }
        }
        (written, failure)
    }
}

/// A part of a run that is being written, until it is dropped.
struct Batch<'a> {
    run: StoredRun,
    /// The part of the run that is in the database then.
    mark: StoredMark,
    _writing: Writing<'a>,
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
        let failure = failure.or(database.write_audit().await);
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
        let is_behind = collector
            .upgrade()
            .is_some_and(|collector| lock(&collector.store).is_behind());
        let rest = if is_behind { PACE } else { TRIM };
        if let Ok(Err(_)) = timeout(rest, changed.changed()).await {
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
        audit: AUDIT,
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

/// Returns what is new of a run, as much as is written at once, and how far it is written then.
fn stored(run: &mut Run, key: StoredKey, is_whole: bool) -> (StoredRun, StoredMark) {
    let Run {
        summary,
        entries,
        said,
        stored,
        bytes,
        ..
    } = run;
    let since = stored.map_or(0, |mark| mark.version);
    let changed = entries.iter().filter(|entry| entry.version > since);
    let mut changed: Vec<_> = changed.collect();
    // In the order of their changes, so that the next part goes on behind the last one of this.
    changed.sort_unstable_by_key(|entry| entry.version);
    let mut taken = 0;
    let mut texts = 0;
    while let Some(entry) = changed.get(taken) {
        let is_full = taken >= BATCH || texts >= BATCH_BYTES;
        let is_same = taken > 0 && changed[taken - 1].version == entry.version;
        if is_full && !is_same {
            break;
        }
        texts += entry.content.len();
        taken += 1;
    }
    let is_part = taken < changed.len();
    changed.truncate(taken);
    let last = changed.last().map_or(since, |entry| entry.version);
    let mark = StoredMark {
        version: if is_part { last } else { summary.version },
        entries: entries.len(),
        at: Instant::now(),
        is_part,
    };
    let entries = changed.into_iter().map(|entry| stored_entry(entry, said));
    let entries = entries.collect();
    let status = match summary.status {
        Status::Running => Status::Unfinished,
        _ if is_part => Status::Unfinished,
        status => status,
    };
    let ended = summary.ended.filter(|_| status != Status::Unfinished);
    let heard = ended.unwrap_or_else(|| micros(SystemTime::now()));
    let mut shown = json!(summary);
    shown["is_whole"] = (is_whole && ended.is_some()).into();
    if ended.is_none() {
        shown["status"] = status.name().into();
        shown["ended"] = Value::Null;
        shown["heard"] = heard.into();
    }
    let head = StoredHead {
        key,
        id: without_nul(&summary.id),
        agent: without_nul(&summary.agent),
        status: status.name().to_owned(),
        begun: summary.begun,
        heard,
        user: summary.user.as_deref().map(without_nul),
        summary: shown.to_string(),
    };
    let run = StoredRun {
        is_new: stored.is_none(),
        head,
        bytes: *bytes as u64,
        entries,
    };
    (run, mark)
}

fn stored_entry(entry: &Entry, said: &mut Said) -> StoredEntry {
    let whole = entry.content.kept.as_deref();
    let whole = whole.map(|kept| said.save(entry.n, kept));
    let is_tool = matches!(entry.kind, EntryKind::Tool { .. });
    let call = entry.call.as_deref().filter(|_| is_tool);
    StoredEntry {
        position: entry.n,
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
}
