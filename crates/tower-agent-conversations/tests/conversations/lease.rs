//! How long a run has its thread.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use serde_json::Map;
use test_support::store::{Fate, FatedStore};
use tokio::sync::Mutex;
use tokio::time::sleep;
use tower::{Layer, ServiceExt};
use tower_agent::call::admit;
use tower_agent::message::Messages;
use tower_agent::{Agent, Checkpoint, Error, ErrorKind};
use tower_agent_conversations::{
    Begun, ClientInput, ConversationStore, MemoryConversations, Refusal, RefusalKind, RunProgress,
    Save, Saving, SessionLayer, StoreError, Thread, Threads,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::{Plain, key};

const LEASE: Duration = Duration::from_millis(300);

async fn begin(threads: &Threads, run: &str) -> Result<Begun, Refusal> {
    let words = [Plain::user("m1", "Hi.")];
    threads.begin(key(), ClientInput::new(run, &words)).await
}

async fn load(store: &impl ConversationStore) -> Thread {
    Thread::load(store, &key()).await.unwrap().unwrap()
}

/// Returns the last save of a run.
fn last_save(begun: &mut Begun) -> Saving {
    let keeper = &mut begun.keeper;
    let saved = keeper.keep(
        Checkpoint::default(),
        Map::new(),
        &Messages::new(),
        RunProgress::Ended,
    );
    match saved {
        Save::Store(saving) => saving,
        other => panic!("{other:?}"),
    }
}

async fn end(begun: &mut Begun) -> Result<(), StoreError> {
    last_save(begun).await
}

#[tokio::test]
async fn a_run_that_takes_longer_than_its_lease_keeps_its_thread() {
    let threads = Threads::new(MemoryConversations::new()).lease(LEASE);
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
    let store = Arc::new(MemoryConversations::new());
    let threads = Threads::new(store.clone()).lease(LEASE);
    // As if its process had died: it saves nothing more.
    drop(begin(&threads, "r1").await.unwrap());
    assert!(begin(&threads, "r2").await.is_err());
    sleep(LEASE * 2).await;
    assert!(!load(&store).await.is_running());
    assert!(begin(&threads, "r2").await.is_ok());
}

#[tokio::test]
async fn nothing_renews_the_lease_of_a_run_that_has_ended() {
    let store = Arc::new(MemoryConversations::new());
    let threads = Threads::new(store.clone()).lease(LEASE);
    let mut begun = begin(&threads, "r1").await.unwrap();
    end(&mut begun).await.unwrap();
    let ended = load(&store).await;
    sleep(LEASE * 2).await;
    let later = load(&store).await;
    assert_eq!(later.version(), ended.version());
    assert!(!later.is_running());
}

/// A layer outside may make another attempt at any time after the run.
#[tokio::test]
async fn a_run_that_has_given_its_session_back_is_not_limited_by_its_lease() {
    for fails in [false, true] {
        let turn = if fails {
            Turn::error(Error::new(ErrorKind::Provider, "away"))
        } else {
            Turn::from_text("Hello.")
        };
        let agent = Agent::builder(ScriptedModel::new([turn])).build().unwrap();
        let sessions = SessionLayer::new(MemoryConversations::new()).lease(LEASE);
        let request = key().request("Hi.");
        let result = sessions.layer(agent).oneshot(request.clone()).await;
        assert_eq!(result.is_err(), fails);
        let begun = SystemTime::now();
        while begun.elapsed().unwrap() < LEASE {
            tokio::task::yield_now().await;
        }
        assert!(admit(&request).is_ok(), "{fails}");
    }
}

#[tokio::test]
async fn a_renewal_whose_answer_is_lost_does_not_cost_a_run_its_thread() {
    // The second write is the first renewal.
    let store = FatedStore::new(async |write| match write.number {
        1 => Fate::Unheard,
        _ => Fate::Made,
    });
    let threads = Threads::new(store).lease(LEASE);
    let mut begun = begin(&threads, "r1").await.unwrap();
    sleep(LEASE * 3).await;
    assert!(begin(&threads, "r2").await.is_err());
    end(&mut begun).await.unwrap();
}

#[tokio::test]
async fn a_save_in_a_task_is_made_although_nobody_awaits_it() {
    let store = Arc::new(MemoryConversations::new());
    let threads = Threads::new(store.clone());
    for is_detached in [true, false] {
        let mut begun = begin(&threads, "r1").await.unwrap();
        let saving = last_save(&mut begun);
        // After one that has not ended, so that it cannot be made at once.
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let gone = Arc::new(Mutex::new(gone));
        let slow = FatedStore::new(move |write| {
            let gone = gone.clone();
            async move {
                if write.expected > 0 {
                    (&mut *gone.lock().await).await.unwrap();
                }
                Fate::Made
            }
        });
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
        assert!(!load(&store).await.is_running());
    }
    // Nothing is left to wait for, and saves go on.
    threads.finish().await;
    let mut begun = begin(&threads, "r1").await.unwrap();
    end(&mut begun).await.unwrap();
}
