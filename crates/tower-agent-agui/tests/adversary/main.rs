//! Clients that send whatever they can make of what they have seen, and people who answer for them
//! with the role or without it: a guarded tool runs once for each answer that the server asked for,
//! by whoever it asked, with the arguments that it asked about, and never else.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod client;
mod staff;
mod world;

use std::sync::Arc;

use test_support::property::{sample, seed};
use test_support::store::FatedStore;
use tower_agent_agui::AgUiBuilder;
use tower_agent_agui::conversations::{MemoryConversations, SealKey};

use self::client::Client;
use self::staff::Staff;
use self::world::{Rng, World};

fn attack(kept: impl Fn(AgUiBuilder) -> AgUiBuilder) {
    let inputs = sample(1_000, 50_000);
    let seed = seed();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let world = World::new(seed);
        let server = kept(world.server()).build();
        let mut staff = Staff::new(server.clone(), world.clone(), Rng::new(seed ^ 2));
        let mut client = Client::new(server, world.clone(), Rng::new(seed));
        for input in 0..inputs {
            client.send().await;
            world.check();
            if input % 3 == 0 {
                client.hear(staff.answer().await);
                world.check();
            }
        }
        let paid = world.paid();
        let granted = world.granted();
        println!(
            "{} of {inputs} refused, {} questions, {paid} paid; of {} for staff {granted} granted, {} answers refused",
            client.refused,
            world.asked(),
            world.asked_of_staff(),
            staff.refused,
        );
        assert!(
            paid * 200 > inputs,
            "too little of it is honest: {paid} paid"
        );
        assert!(
            granted * 400 > inputs,
            "too little is granted by staff: {granted}"
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
    attack(|server| server.threads(MemoryConversations::new().max_conversations(2)));
}

#[test]
fn a_slow_store_runs_only_approved_calls() {
    attack(|server| server.threads(Arc::new(FatedStore::slow())));
}

/// One process: it knows the answers that it has seen.
#[test]
fn sealed_threads_run_only_approved_calls() {
    attack(|server| server.stateless(SealKey::new([9; 32])));
}
