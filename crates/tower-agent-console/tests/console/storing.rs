//! A database behind the console that hangs, fails or is slow: no run feels it, and the page shows
//! what is in memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use serde_json::json;
use tokio::sync::Notify;
use tower_agent::error::Result;
use tower_agent::{Agent, AgentRequest, Error, ErrorKind, Tool};
use tower_agent_console::{
    Console, RunStore, StoredAudit, StoredBounds, StoredEntry, StoredHead, StoredKey, StoredPlace,
    StoredQuery, StoredRun,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{User, get, json, runs, service, user_of};

/// A store in memory that can be made to fail or to hang.
#[derive(Clone, Default)]
struct Shelf {
    runs: Arc<Mutex<Vec<StoredRun>>>,
    audit: Arc<Mutex<Vec<StoredAudit>>>,
    /// The most entries that were put at once.
    most: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
    hangs: Arc<AtomicBool>,
    /// A write that hangs waits for it, and is done then.
    goes_on: Arc<Notify>,
}

impl Shelf {
    /// Returns what is made of the runs, unless it hangs or fails.
    fn does<'a, T: Send + 'a>(
        &'a self,
        what: impl FnOnce(&mut Vec<StoredRun>) -> T + Send + 'a,
    ) -> BoxFuture<'a, Result<T>> {
        if self.hangs.load(Ordering::SeqCst) {
            return pending().boxed();
        }
        if self.fails.load(Ordering::SeqCst) {
            let error = Error::new(ErrorKind::Store, "the disk is full");
            return ready(Err(error)).boxed();
        }
        ready(Ok(what(&mut self.runs.lock().unwrap()))).boxed()
    }

    fn ids(&self) -> Vec<String> {
        let runs = self.runs.lock().unwrap();
        runs.iter().map(|run| run.head.id.clone()).collect()
    }
}

impl RunStore for Shelf {
    fn put(&self, run: StoredRun) -> BoxFuture<'_, Result<bool>> {
        async move {
            if self.hangs.load(Ordering::SeqCst) {
                self.goes_on.notified().await;
            }
            self.most.fetch_max(run.entries.len(), Ordering::SeqCst);
            self.does(|runs| {
                let mut known = runs.iter_mut();
                match known.find(|known| known.head.key == run.head.key) {
                    Some(known) => {
                        known.head = run.head;
                        for entry in run.entries {
                            known.entries.retain(|old| old.position != entry.position);
                            known.entries.push(entry);
                        }
                        known.entries.sort_by_key(|entry| entry.position);
                    }
                    None if run.is_new => runs.push(run),
                    None => return false,
                }
                true
            })
            .await
        }
        .boxed()
    }

    fn list<'a>(&'a self, query: &'a StoredQuery) -> BoxFuture<'a, Result<Vec<StoredHead>>> {
        self.does(|runs| {
            let heads = runs.iter().map(|run| run.head.clone());
            let mut heads: Vec<_> = heads
                .filter(|head| query.key.as_ref().is_none_or(|key| *key == head.key))
                .filter(|head| query.id.as_ref().is_none_or(|id| *id == head.id))
                .filter(|head| query.user.is_none() || query.user == head.user)
                .filter(|head| {
                    let before = query.before.as_ref();
                    before.is_none_or(|before| head.place() < *before)
                })
                .collect();
            heads.sort_by_key(|head| std::cmp::Reverse(head.place()));
            heads.truncate(query.limit as usize);
            heads
        })
    }

    fn entries<'a>(
        &'a self,
        key: &'a StoredKey,
        from: u32,
        limit: u32,
        _: bool,
    ) -> BoxFuture<'a, Result<Vec<StoredEntry>>> {
        self.does(move |runs| {
            let run = runs.iter().find(|run| run.head.key == *key);
            let entries = run.into_iter().flat_map(|run| run.entries.clone());
            entries.skip(from as usize).take(limit as usize).collect()
        })
    }

    fn calls<'a>(
        &'a self,
        key: &'a StoredKey,
        from: u32,
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<StoredEntry>>> {
        self.entries(key, from, limit, true)
    }

    fn numbers<'a>(&'a self, console: &'a str, from: u64) -> BoxFuture<'a, Result<Vec<u64>>> {
        self.does(move |runs| {
            let keys = runs.iter().map(|run| &run.head.key);
            let own = keys.filter(|key| key.console == console && key.number >= from);
            own.map(|key| key.number).collect()
        })
    }

    fn remove(&self, key: StoredKey) -> BoxFuture<'_, Result<bool>> {
        self.does(move |runs| {
            let before = runs.len();
            runs.retain(|run| run.head.key != key);
            runs.len() < before
        })
    }

    fn remove_user(&self, user: String) -> BoxFuture<'_, Result<u64>> {
        self.does(move |runs| {
            let before = runs.len();
            runs.retain(|run| run.head.user.as_deref() != Some(&user));
            (before - runs.len()) as u64
        })
    }

    fn audit(&self, rows: Vec<StoredAudit>) -> BoxFuture<'_, Result<()>> {
        let audit = self.audit.clone();
        self.does(move |_| audit.lock().unwrap().extend(rows))
    }

    fn audited<'a>(
        &'a self,
        _: Option<&'a StoredPlace>,
        _: u32,
    ) -> BoxFuture<'a, Result<Vec<StoredAudit>>> {
        let audit = self.audit.clone();
        self.does(move |_| audit.lock().unwrap().clone())
    }

    fn trim(&self, _: StoredBounds) -> BoxFuture<'_, Result<u64>> {
        self.does(|_| 0)
    }
}

fn agent(console: &Console) -> Agent {
    Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

async fn run(agent: &Agent, id: &str) {
    let request = AgentRequest::new("?").with_run_id(id);
    let response = agent.run(request.with_extension(User("ada"))).await;
    assert_eq!(response.unwrap().text(), "hi");
}

#[tokio::test(start_paused = true)]
async fn a_database_that_hangs_delays_no_run_and_no_page() {
    let shelf = Shelf::default();
    shelf.hangs.store(true, Ordering::SeqCst);
    let console = Console::new().max_runs(2).stored_in(shelf.clone());
    let service = service(&console);
    let agent = agent(&console);
    for id in ["r1", "r2", "r3"] {
        run(&agent, id).await;
    }
    let page = json(&service, "/api/runs").await;
    assert_eq!(page["runs"].as_array().unwrap().len(), 2);
    assert_eq!(page["is_away"], true);
    assert_eq!(page["unstored"], 1, "it went before it was written");
    assert_eq!(page["gone"], 0);
    json(&service, "/api/runs/r3").await;
    let (status, text) = get(&service, "/api/runs/r1").await;
    assert_eq!(status, 503, "nobody knows whether it is there: {text}");
    assert_eq!(console.flush().await, 2, "it says so in time");
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_is_tried_again() {
    let shelf = Shelf::default();
    shelf.fails.store(true, Ordering::SeqCst);
    let console = Console::new().stored_in(shelf.clone());
    let agent = agent(&console);
    run(&agent, "r1").await;
    run(&agent, "r2").await;
    assert_eq!(console.flush().await, 2);
    let page = json(&service(&console), "/api/runs").await;
    assert_eq!(page["is_away"], true);
    assert_eq!(page["runs"].as_array().unwrap().len(), 2);
    shelf.fails.store(false, Ordering::SeqCst);
    while console.flush().await > 0 {}
    assert_eq!(shelf.ids(), ["r1", "r2"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_removed_while_it_is_written_does_not_come_back() {
    let shelf = Shelf::default();
    let console = Console::new().user_id(user_of).stored_in(shelf.clone());
    let agent = agent(&console);
    shelf.hangs.store(true, Ordering::SeqCst);
    run(&agent, "r1").await;
    // The writer is at it.
    assert_eq!(console.flush().await, 1);
    let error = console.delete_user("ada").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Store, "it may come back");
    shelf.hangs.store(false, Ordering::SeqCst);
    shelf.goes_on.notify_one();
    assert_eq!(console.delete_user("ada").await.unwrap(), 1);
    assert_eq!(shelf.ids(), [""; 0]);
    assert_eq!(runs(&service(&console)).await, [json!(null); 0]);
}

#[test]
fn a_console_with_a_database_outlives_a_runtime() {
    let shelf = Shelf::default();
    // Without a runtime: the first one that there is writes.
    let console = Console::new().stored_in(shelf.clone());
    for id in ["r1", "r2"] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            run(&agent(&console), id).await;
            assert_eq!(console.flush().await, 0);
        });
    }
    assert_eq!(shelf.ids(), ["r1", "r2"]);
}

/// An agent that is at its tool until it is told to go on.
fn slow(console: &Console, goes_on: &Arc<Notify>) -> Agent {
    let goes_on = goes_on.clone();
    let wait = Tool::function("wait", "Waits.", move |_: serde_json::Value| {
        let goes_on = goes_on.clone();
        async move {
            goes_on.notified().await;
            "done"
        }
    });
    let script = [Turn::tool("wait", json!({})), Turn::from_text("hi")];
    Agent::builder(ScriptedModel::new(script))
        .tool(wait)
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_run_that_goes_on_is_written_as_it_begins_and_from_time_to_time() {
    let shelf = Shelf::default();
    let console = Console::new().stored_in(shelf.clone());
    let goes_on = Arc::new(Notify::new());
    let running = tokio::spawn(slow(&console, &goes_on).run(AgentRequest::new("?")));
    let head = || Some(shelf.runs.lock().unwrap().first()?.head.clone());
    let service = service(&console);
    while head().is_none_or(|head| !head.summary.contains("\"tool_calls\":1")) {
        // The time for the next write passes by itself, since nobody has anything to do.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        json(&service, "/api/runs").await;
    }
    assert_eq!(head().unwrap().status, "unfinished");
    let here = runs(&service).await;
    assert_eq!(here.len(), 1);
    assert_eq!(here[0]["status"], "running", "this process is at it");

    // One whose process is gone is told from it.
    let after = Console::new().stored_in(shelf.clone());
    let there = runs(&crate::world::service(&after)).await;
    assert_eq!(there[0]["status"], "unfinished");
    assert!(there[0]["ended"].is_null() && there[0]["heard"].is_u64());

    goes_on.notify_one();
    running.await.unwrap().unwrap();
    assert_eq!(console.flush().await, 0);
    assert_eq!(head().unwrap().status, "completed");
    assert_eq!(
        runs(&crate::world::service(&after)).await[0]["status"],
        "completed"
    );
    let run = shelf.runs.lock().unwrap()[0].clone();
    let positions = run.entries.iter().map(|entry| entry.position);
    assert!(positions.eq(0..6), "each entry once");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_deleted_elsewhere_while_it_goes_on_does_not_come_back() {
    let shelf = Shelf::default();
    let console = Console::new().user_id(user_of).stored_in(shelf.clone());
    let goes_on = Arc::new(Notify::new());
    let request = AgentRequest::new("?").with_extension(User("ada"));
    let running = tokio::spawn(slow(&console, &goes_on).run(request));
    while shelf.ids().is_empty() {
        tokio::task::yield_now().await;
        assert_eq!(console.flush().await, 0);
    }
    let other = Console::new().stored_in(shelf.clone());
    assert_eq!(other.delete_user("ada").await.unwrap(), 1);
    goes_on.notify_one();
    running.await.unwrap().unwrap();
    assert_eq!(console.flush().await, 0);
    assert_eq!(shelf.ids(), [""; 0]);
    assert_eq!(runs(&service(&console)).await, [json!(null); 0]);
}

#[tokio::test(start_paused = true)]
async fn a_long_run_is_written_in_parts() {
    let shelf = Shelf::default();
    let console = Console::new().stored_in(shelf.clone());
    let look = Tool::function("look", "Looks.", |_: serde_json::Value| "nothing");
    let agent = Agent::builder(ScriptedModel::always(Turn::tool("look", json!({}))))
        .tool(look)
        .max_iterations(600)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent.run("?").await.unwrap_err();
    assert_eq!(console.flush().await, 0);
    let run = shelf.runs.lock().unwrap()[0].clone();
    assert_eq!(run.head.status, "failed");
    let positions = run.entries.iter().map(|entry| entry.position);
    assert!(positions.eq(0..run.entries.len() as u32));
    assert!(run.entries.len() > 1_800);
    assert!(shelf.most.load(Ordering::SeqCst) <= 501, "at once");
}

#[tokio::test(start_paused = true)]
async fn who_has_done_what_is_written_behind_and_tried_again() {
    let shelf = Shelf::default();
    shelf.fails.store(true, Ordering::SeqCst);
    let console = Console::new().stored_in(shelf.clone());
    let service = service(&console);
    let (status, _) = crate::world::post(&service, "/api/delete", json!({ "run": "none" })).await;
    assert_eq!(
        status, 403,
        "the operator does not manage data, and it is written down"
    );
    assert_eq!(console.flush().await, 1);
    let page = json(&service, "/api/audit").await;
    assert_eq!(page["is_away"], true);
    assert_eq!(page["rows"].as_array().unwrap().len(), 1);
    shelf.fails.store(false, Ordering::SeqCst);
    while console.flush().await > 0 {}
    let rows = shelf.audit.lock().unwrap().clone();
    assert_eq!((rows.len(), rows[0].status), (1, 403));
    assert_eq!(rows[0].operator, "sam");
}

#[tokio::test(start_paused = true)]
async fn what_a_call_adds_does_not_grow_with_the_conversation() {
    let shelf = Shelf::default();
    let console = Console::new().stored_in(shelf.clone()).record_content();
    let look = Tool::function("look", "Looks.", |_: serde_json::Value| {
        "nothing ".repeat(50)
    });
    let agent = Agent::builder(ScriptedModel::always(Turn::tool("look", json!({}))))
        .name("looker")
        .instructions("Look around you. ".repeat(40))
        .tool(look)
        .max_iterations(200)
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent
        .run(AgentRequest::new("?").with_run_id("r"))
        .await
        .unwrap_err();
    assert_eq!(console.flush().await, 0);
    let run = shelf.runs.lock().unwrap()[0].clone();
    let whole = run.entries.iter().filter_map(|entry| entry.whole.as_ref());
    let whole: Vec<usize> = whole.map(String::len).collect();
    let [first, last] = [&whole[10..110], &whole[whole.len() - 101..whole.len() - 1]];
    let [first, last] = [first, last].map(|some| some.iter().sum::<usize>());
    assert!(
        last * 10 < first * 11,
        "{first} bytes at first, then {last}"
    );

    let after = Console::new().stored_in(shelf.clone());
    for step in [0, 1, 150, 199] {
        let fork = after.fork("r", step).await.unwrap();
        let request = AgentRequest::from(fork);
        assert_eq!(request.messages().len(), 1 + 2 * step);
        let results = request
            .messages()
            .iter()
            .flat_map(tower_agent::Message::tool_results);
        assert!(
            results
                .into_iter()
                .all(|result| result.text().contains("nothing nothing"))
        );
    }
}
