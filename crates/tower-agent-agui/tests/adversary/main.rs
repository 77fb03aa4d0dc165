//! A client that sends whatever it can make of what it has seen: a guarded tool runs once for each
//! answer that the server asked for, with the arguments that it asked about, and never else.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod client;
mod world;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use tokio::sync::Mutex;
use tower_agent::BoxError;
use tower_agent_agui::AgUiBuilder;
use tower_agent_agui::threads::{
    MemoryThreads, SealKey, Thread, ThreadInfo, ThreadKey, ThreadQuery, ThreadStore,
};

use self::client::Client;
use self::world::{Rng, World};

/// Another store, which takes its time.
#[derive(Default)]
struct Slow(Mutex<HashMap<ThreadKey, String>>);

impl ThreadStore for Slow {
    async fn load(&self, key: &ThreadKey) -> Result<Option<Thread>, BoxError> {
        tokio::task::yield_now().await;
        let found = self.0.lock().await.get(key).cloned();
        tokio::task::yield_now().await;
        Ok(found.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    async fn save(&self, key: &ThreadKey, thread: Thread, expected: u64) -> Result<bool, BoxError> {
        tokio::task::yield_now().await;
        let mut threads = self.0.lock().await;
        let found = threads
            .get(key)
            .map(|text| serde_json::from_str::<Thread>(text));
        if found.transpose()?.map_or(0, |thread| thread.version()) != expected {
            return Ok(false);
        }
        threads.insert(key.clone(), serde_json::to_string(&thread)?);
        drop(threads);
        tokio::task::yield_now().await;
        Ok(true)
    }

    async fn list(&self, _: &ThreadQuery) -> Result<Vec<ThreadInfo>, BoxError> {
        Ok(Vec::new())
    }

    async fn delete(&self, key: &ThreadKey) -> Result<bool, BoxError> {
        Ok(self.0.lock().await.remove(key).is_some())
    }
}

/// How many inputs each server gets. `ADVERSARY_INPUTS` sets it, for a longer attack.
const INPUTS: usize = 2_000;

fn attack(kept: impl Fn(AgUiBuilder) -> AgUiBuilder) {
    let inputs = std::env::var("ADVERSARY_INPUTS").map_or(INPUTS, |inputs| inputs.parse().unwrap());
    let seed = match std::env::var("ADVERSARY_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => RandomState::new().hash_one(inputs),
    };
    println!("ADVERSARY_SEED={seed}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(seed);
        let server = kept(world.server()).build();
        let mut client = Client::new(server, world.clone(), Rng::new(seed));
        for _ in 0..inputs {
            client.send().await;
            world.check();
        }
        let paid = world.paid();
        println!(
            "{} of {inputs} refused, {} questions, {paid} paid",
            client.refused,
            world.asked()
        );
        assert!(
            paid * 200 > inputs,
            "too little of it is honest: {paid} paid"
        );
        assert!(
            client.refused * 20 > inputs,
            "too little is refused: {}",
            client.refused
        );
    });
}

#[test]
fn threads_in_memory_run_only_approved_calls() {
    attack(|server| server);
}

#[test]
fn evicted_threads_run_only_approved_calls() {
    attack(|server| server.threads(MemoryThreads::new().max_threads(2)));
}

#[test]
fn a_slow_store_runs_only_approved_calls() {
    attack(|server| server.threads(Arc::new(Slow::default())));
}

/// One process: it knows the answers that it has seen.
#[test]
fn sealed_threads_run_only_approved_calls() {
    attack(|server| server.stateless(SealKey::new([9; 32])));
}
