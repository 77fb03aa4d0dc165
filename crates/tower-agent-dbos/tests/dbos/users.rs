//! Whose runs they are, and the deletion of everything of one user.

use tower_agent::{Agent, AgentRequest, Effect};
use tower_agent_dbos::Worker;
use tower_agent_durable::journal::{Durable, JournalError, RunKey};

use super::{Cluster, journal_error, text};
use crate::support::{Count, calling, counting};

/// The words that both users send.
const WORDS: &str = "the marker of somebody";

fn agent(cluster: &Cluster, pays: &Count) -> Agent {
    Agent::builder(calling(&["pay"], &Count::default()))
        .name("clerk")
        .tool(counting("pay", Effect::Mutating, pays))
        .global_callbacks(Durable::new(cluster.journal.clone()))
        .build()
        .unwrap()
}

/// Returns how many rows of the tables of DBOS and of the journal have a text.
fn rows_with(cluster: &Cluster, text: &str) -> u32 {
    let tables = cluster.query(
        "SELECT schemaname || '.' || relname FROM pg_stat_user_tables \
         WHERE schemaname = 'dbos' OR relname LIKE 'tower_agent_%'",
    );
    let tables = tables.lines().map(|table| {
        let rows = cluster.query(&format!(
            "SELECT count(*) FROM {table} AS t WHERE t::TEXT LIKE '%{text}%'"
        ));
        rows.parse::<u32>().unwrap()
    });
    tables.sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn users_share_no_run_and_one_call_deletes_all_of_a_user() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let (engine, pays) = (&cluster.engine, Count::default());
    let worker = Worker::builder(engine, "one").agent(agent(&cluster, &pays));
    let worker = worker.start().await.unwrap();
    let ask = async |user: &str, id: &str| {
        let request = AgentRequest::new(WORDS).with_run_id(id);
        let request = RunKey::new(id).of(user).request(request);
        let run = engine.start("clerk", request).await.unwrap();
        assert_eq!(run.key(), &RunKey::new(id).of(user));
        assert_eq!(text(&run.end().await.unwrap()), "Done.");
    };
    for user in ["ada-lovelace", "bob"] {
        ask(user, "invoice/7").await;
        ask(user, "invoice/8").await;
    }
    assert_eq!(pays.get(), 4);
    // Neither is nobody's, nor has one whose id looks like its key.
    let adas = RunKey::new("invoice/7").of("ada-lovelace");
    for other in [RunKey::new("invoice/7"), RunKey::new(adas.to_text())] {
        let unknown = engine.get(other).await.unwrap_err();
        assert!(matches!(
            journal_error(&unknown),
            JournalError::UnknownRun { .. }
        ));
    }

    assert_ne!(rows_with(&cluster, "ada-lovelace"), 0);
    engine.delete_user("ada-lovelace").await.unwrap();
    assert_eq!(rows_with(&cluster, "ada-lovelace"), 0);
    assert_ne!(rows_with(&cluster, WORDS), 0);
    // Her ids can be used again; his runs are there.
    ask("ada-lovelace", "invoice/7").await;
    ask("bob", "invoice/7").await;
    assert_eq!(pays.get(), 5);
    for user in ["ada-lovelace", "bob"] {
        engine.delete_user(user).await.unwrap();
    }
    assert_eq!(rows_with(&cluster, WORDS), 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_id_of_a_deleted_run_can_be_used_again() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let (engine, pays) = (&cluster.engine, Count::default());
    let worker = Worker::builder(engine, "one").agent(agent(&cluster, &pays));
    let worker = worker.start().await.unwrap();
    for times in 1..=3 {
        let request = AgentRequest::new(WORDS).with_run_id("again");
        let run = engine.start("clerk", request).await.unwrap();
        assert_eq!(text(&run.end().await.unwrap()), "Done.");
        assert_eq!(pays.get(), times);
        engine.delete("again").await.unwrap();
        assert_eq!(rows_with(&cluster, WORDS), 0);
    }
    worker.stop().await.unwrap();
}
