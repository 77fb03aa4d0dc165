//! How long a run has its thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::Map;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tower_agent::message::Messages;
use tower_agent::{BoxError, Checkpoint};
use tower_agent_threads::{
    Begun, ClientInput, MemoryThreads, Progress, Refusal, RefusalKind, Save, Saving, Thread,
    ThreadInfo, ThreadKey, ThreadQuery, ThreadStore, Threads,
};

use crate::{Plain, key};

const LEASE: Duration = Duration::from_millis(300);

async fn begin(threads: &Threads, run: &str) -> Result<Begun, Refusal> {
    let words = [Plain::user("m1", "Hi.")];
    threads.begin(key(), ClientInput::new(run, &words)).await
}

/// Returns the last save of a run.
fn last_save(begun: &mut Begun) -> Saving {
    let keeper = &mut begun.keeper;
    let saved = keeper.keep(
        Checkpoint::default(),
        Map::new(),
        &Messages::new(),
        Progress::Ended,
    );
    match saved {
        Save::Store(saving) => saving,
        other => panic!("{other:?}"),
    }
}

async fn end(begun: &mut Begun) -> Result<(), BoxError> {
    last_save(begun).await
}

#[tokio::test]
async fn a_run_that_takes_longer_than_its_lease_keeps_its_thread() {
    let threads = Threads::new(MemoryThreads::new()).lease(LEASE);
    let mut first = begin(&threads, "r1").await.unwrap();
    sleep(LEASE * 3).await;
    let refusal = begin(&threads, "r2").await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Busy);
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(1)));

    end(&mut first).await.unwrap();
    assert!(begin(&threads, "r2").await.is_ok());
}

#[tokio::test]
async fn the_thread_of_a_run_that_is_gone_is_free_after_the_lease() {
    let store = Arc::new(MemoryThreads::new());
    let threads = Threads::new(store.clone()).lease(LEASE);
    // As if its process had died: it saves nothing more.
    drop(begin(&threads, "r1").await.unwrap());
    assert!(begin(&threads, "r2").await.is_err());
    sleep(LEASE * 2).await;
    assert!(!store.load(&key()).await.unwrap().unwrap().is_running());
    assert!(begin(&threads, "r2").await.is_ok());
}

#[tokio::test]
async fn nothing_renews_the_lease_of_a_run_that_has_ended() {
    let store = Arc::new(MemoryThreads::new());
    let threads = Threads::new(store.clone()).lease(LEASE);
    let mut begun = begin(&threads, "r1").await.unwrap();
    end(&mut begun).await.unwrap();
    let ended = store.load(&key()).await.unwrap().unwrap();
    sleep(LEASE * 2).await;
    let later = store.load(&key()).await.unwrap().unwrap();
    assert_eq!(later.version(), ended.version());
    assert!(!later.is_running());
}

/// Fails after it has saved, once.
struct Unsure {
    store: MemoryThreads,
    saves: AtomicU64,
}

impl ThreadStore for Unsure {
    async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        self.store.load(key).await
    }

    async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        let is_saved = self.store.save(key, thread, expected).await?;
        // The second one is the first renewal.
        if self.saves.fetch_add(1, Ordering::SeqCst) == 1 {
            return Err("the connection is lost".into());
        }
        Ok(is_saved)
    }

    async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
        self.store.list(query).await
    }

    async fn delete(&self, key: &ThreadKey) -> Result<bool, BoxError> {
        self.store.delete(key).await
    }
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_does_not_cost_a_run_its_thread() {
    let store = Unsure {
        store: MemoryThreads::new(),
        saves: AtomicU64::new(0),
    };
    let threads = Threads::new(store).lease(LEASE);
    let mut begun = begin(&threads, "r1").await.unwrap();
    sleep(LEASE * 3).await;
    assert!(begin(&threads, "r2").await.is_err());
    end(&mut begun).await.unwrap();
}

#[tokio::test]
async fn a_save_in_a_task_is_made_although_nobody_awaits_it() {
    let store = Arc::new(MemoryThreads::new());
    let threads = Threads::new(store.clone());
    for is_detached in [true, false] {
        let mut begun = begin(&threads, "r1").await.unwrap();
        let saving = last_save(&mut begun);
        // After one that has not ended, so that it cannot be made at once.
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let slow = Slow {
            store: MemoryThreads::new(),
            gone: Mutex::new(gone),
        };
        let slow = Threads::new(slow);
        let mut earlier = begin(&slow, "r1").await.unwrap();
        let both = saving.after(last_save(&mut earlier));
        if is_detached {
            both.detach();
        } else {
            drop(both.in_task());
        }
        let mut finish = Box::pin(threads.finish());
        tokio::task::yield_now().await;
        assert!((&mut finish).now_or_never().is_none());
        go.send(()).unwrap();
        finish.await;
        assert!(!store.load(&key()).await.unwrap().unwrap().is_running());
    }
    // Nothing is left to wait for, and saves go on.
    threads.finish().await;
    let mut begun = begin(&threads, "r1").await.unwrap();
    end(&mut begun).await.unwrap();
}

/// Its second save waits.
struct Slow {
    store: MemoryThreads,
    gone: Mutex<tokio::sync::oneshot::Receiver<()>>,
}

impl ThreadStore for Slow {
    async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        self.store.load(key).await
    }

    async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        if expected > 0 {
            (&mut *self.gone.lock().await).await?;
        }
        self.store.save(key, thread, expected).await
    }

    async fn list(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
        self.store.list(query).await
    }

    async fn delete(&self, key: &ThreadKey) -> Result<bool, BoxError> {
        self.store.delete(key).await
    }
}
