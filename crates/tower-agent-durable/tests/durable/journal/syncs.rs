//! How often a durable run waits for the disk.

use tower_agent::{AgentRequest, Effect};
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::server::Server;
use crate::support::{Count, counting, durable};

/// The server writes its log when a commit asks for it, and hardly ever by itself.
const SETTINGS: &[&str] = &[
    "fsync=on",
    "synchronous_commit=on",
    "wal_writer_delay=10s",
    "bgwriter_delay=10s",
    "checkpoint_timeout=1h",
    "autovacuum=off",
];

const TOOL_CALLS: usize = 10;

/// Returns the number of times that the log was synced in a run, beyond that of its start and its
/// end.
async fn syncs(server: &Server, effect: Effect, name: &str) -> usize {
    let database = server.connect().await;
    let calls = Count::default();
    let call = Turn::tool("act", serde_json::json!({}));
    let turns = std::iter::repeat_n(call, TOOL_CALLS).chain([Turn::from_text("Done.")]);
    let agent = durable(ScriptedModel::new(turns), database.clone())
        .tool(counting("act", effect, &calls))
        .build()
        .unwrap();
    let synced = || -> usize {
        server
            .query("SELECT pg_stat_force_next_flush(); SELECT wal_sync FROM pg_stat_wal")
            .parse()
            .unwrap()
    };
    let before = synced();
    let request = AgentRequest::new("Act.").with_run_id(name);
    agent.run(request).await.unwrap();
    assert_eq!(usize::try_from(calls.get()).unwrap(), TOOL_CALLS);
    // A connection reports what it has done when it ends.
    database.close().await;
    synced() - before - 2
}

#[tokio::test]
async fn a_call_that_may_be_repeated_waits_for_the_disk_once_and_another_one_twice() {
    let Some(server) = Server::start_with("syncs", SETTINGS) else {
        return;
    };
    // Creates the tables.
    server.connect().await.close().await;
    let model_calls = TOOL_CALLS + 1;
    // A write of the server's own may come between.
    let own = 2;
    let pure = syncs(&server, Effect::Pure, "pure").await;
    assert!(
        (model_calls + TOOL_CALLS..=model_calls + TOOL_CALLS + own).contains(&pure),
        "{pure}"
    );
    let mutating = syncs(&server, Effect::Mutating, "mutating").await;
    assert!(
        (model_calls + 2 * TOOL_CALLS..=model_calls + 2 * TOOL_CALLS + own).contains(&mutating),
        "{mutating}"
    );
}
