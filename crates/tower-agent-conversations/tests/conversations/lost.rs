//! A run that has lost its conversation starts nothing more, whichever policy keeps it.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use test_support::store::{Fate, FatedStore};
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, Error, ErrorKind, Request, Tool, ToolRequest};
use tower_agent_conversations::{Append, ClientInput, ConversationStore, SessionLayer, Threads};
use tower_agent_test::{ScriptedModel, Turn};

use crate::{Plain, key};

/// Short, so that the first renewal comes soon.
const LEASE: Duration = Duration::from_millis(300);

/// How a run loses its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Deleted,
    /// By another run, whose process believed this one to be dead.
    Taken,
    /// The store is away for longer than the lease.
    Away,
    /// So is the process: nothing runs in it, not even the renewal.
    Paused,
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    Session,
    Thread,
}

async fn lose(store: &impl ConversationStore, loss: Loss) {
    match loss {
        Loss::Deleted => assert!(store.delete(&key()).await.unwrap()),
        Loss::Taken => {
            let stored = store.load(&key(), 0).await.unwrap().unwrap();
            let mut head: Value = serde_json::from_str(&stored.head).unwrap();
            head["writer"] = "another".into();
            let append = Append::new(head.to_string(), stored.entries.len());
            store.append(&key(), stored.version, append).await.unwrap();
        }
        Loss::Away | Loss::Paused => {}
    }
}

/// Returns the payments of a run that has lost its conversation in its first tool, and its error.
async fn paid(policy: Policy, loss: Loss) -> (u32, Error) {
    let store = Arc::new(FatedStore::new(move |write| {
        let is_away = loss == Loss::Away && write.number > 0;
        ready(if is_away { Fate::Failed } else { Fate::Made })
    }));
    let slow = Tool::function_with("slow", "Takes its time.", {
        let store = store.clone();
        move |_: Value, call: ToolRequest| {
            let store = store.clone();
            async move {
                lose(&*store, loss).await;
                while !call.context().lease().is_over() {
                    // A paused process lets nothing else run.
                    if loss == Loss::Paused {
                        std::thread::yield_now();
                    } else {
                        tokio::task::yield_now().await;
                    }
                }
                "done"
            }
        }
    });
    let payments = Arc::new(AtomicU32::new(0));
    let counted = payments.clone();
    let pay = Tool::function("pay", "Pays.", move |_: Value| {
        counted.fetch_add(1, Ordering::SeqCst);
        "paid"
    });
    let turns = [
        Turn::tool("slow", json!({})).and_tool("pay", json!({})),
        Turn::tool("pay", json!({})),
        Turn::from_text("Done."),
    ];
    let agent = Agent::builder(ScriptedModel::new(turns)).tools([slow, pay]);
    let agent = agent.tool_concurrency(1).build().unwrap();
    let result = match policy {
        Policy::Session => {
            let sessions = SessionLayer::new(store).lease(LEASE);
            sessions.layer(agent).oneshot(key().request("Go.")).await
        }
        Policy::Thread => {
            let threads = Threads::new(store).lease(LEASE);
            let words = [Plain::user("m1", "Go.")];
            let begun = threads.begin(key(), ClientInput::new("r1", &words)).await;
            agent.run(begun.unwrap().request).await
        }
    };
    (payments.load(Ordering::SeqCst), result.unwrap_err())
}

#[tokio::test]
async fn a_run_that_has_lost_its_conversation_starts_nothing_more() {
    for policy in [Policy::Session, Policy::Thread] {
        for loss in [Loss::Deleted, Loss::Taken, Loss::Away, Loss::Paused] {
            let (paid, error) = paid(policy, loss).await;
            assert_eq!(paid, 0, "{policy:?} {loss:?}");
            let is_told = matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Store);
            assert!(is_told, "{policy:?} {loss:?}: {error}");
        }
    }
}
