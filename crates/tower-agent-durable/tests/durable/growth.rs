//! How much a database grows: by what is new.

use test_support::property::sample;
use tower::{Layer, ServiceExt};
use tower_agent::{Agent, AgentRequest, Effect};
use tower_agent_conversations::{ConversationKey, ConversationStore, Session, SessionLayer};
use tower_agent_durable::journal::{Durable, Journal};
use tower_agent_test::{ScriptedModel, Turn};

use tower_agent_durable::Sqlite;

use crate::support::folder::Folder;
use crate::support::server::Server;
use crate::support::{Count, calling, counting, durable};

/// Returns the number of turns of the long conversation.
fn turns() -> u32 {
    sample(100, 400)
}

/// The maximum weight of a step with its share of the run, in bytes.
const STEP: u64 = 1150;

/// The bytes of a page of PostgreSQL, and the number of tables that runs are in.
const PAGE: u64 = 8192;
const RUN_TABLES: u64 = 4;

/// Makes turns of 1 kB each, in two messages, in the session that this returns for each. Every turn
/// is a durable run of its own.
async fn make_turns<D>(database: &D, user: &str, session: impl Fn(u32) -> u32)
where
    D: Journal + ConversationStore + Clone,
{
    let model = ScriptedModel::always(Turn::from_text("a".repeat(500)));
    let agent = Agent::builder(model).name("clerk");
    let agent = agent.global_callbacks(Durable::new(database.clone()));
    let agent = SessionLayer::new(database.clone()).layer(agent.build().unwrap());
    for turn in 0..turns() {
        let question = format!("{turn:04}{}", "q".repeat(496));
        let request = AgentRequest::new(question).with_run_id(format!("run {turn:04}"));
        let key = ConversationKey::new("shop", user, format!("{:04}", session(turn)));
        agent.clone().oneshot(key.request(request)).await.unwrap();
    }
    let last = ConversationKey::new("shop", user, format!("{:04}", session(turns() - 1)));
    let last = Session::load(database, &last).await.unwrap().unwrap();
    assert_eq!(last.checkpoint.messages.last().unwrap().text().len(), 500);
}

/// Makes runs of three steps each. Returns the number of steps.
async fn make_runs<D: Journal>(database: &D) -> u64 {
    let calls = Count::default();
    let agent = durable(calling(&["pay"], &calls), database.clone());
    let agent = agent.tool(counting("pay", Effect::Mutating, &calls));
    let agent = agent.build().unwrap();
    for run in 0..300 {
        let request = AgentRequest::new("Do it.").with_run_id(format!("run {run}"));
        agent.run(request).await.unwrap();
    }
    u64::from(calls.get())
}

fn file_size(folder: &Folder) -> u64 {
    let files = std::fs::read_dir(folder.file("")).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

/// Returns the bytes of all tables with their indexes, without what is free, and without the
/// server's maps of what is free, which it makes when it likes.
fn table_size(server: &Server) -> u64 {
    server.query("VACUUM FULL");
    let size = server.query(
        "SELECT sum(pg_relation_size(oid) + pg_indexes_size(oid) \
         + CASE reltoastrelid WHEN 0 THEN 0 ELSE pg_relation_size(reltoastrelid) END) FROM pg_class \
         WHERE relkind = 'r' AND relname LIKE 'tower_agent_%'",
    );
    size.parse().unwrap()
}

/// Fails unless a long conversation weighs what its turns add, each by itself.
fn check_turns(conversation: u64, alone: u64) {
    assert!(
        conversation * 10 <= alone * 13,
        "{conversation} bytes, where the turns alone have {alone}"
    );
    // Two copies of each message, what it takes to replay the turn, and pages that are not full.
    let most = u64::from(turns()) * 5 * 1024;
    assert!(conversation <= most, "{conversation} bytes");
}

fn check_steps(weight: u64, steps: u64) {
    assert!(weight <= steps * STEP, "{weight} bytes for {steps} steps");
}

async fn empty_file() -> u64 {
    let folder = Folder::new("growth-empty");
    Sqlite::open(folder.file("agent.db"))
        .await
        .unwrap()
        .close()
        .await;
    file_size(&folder)
}

/// Returns the bytes that turns add to a file.
async fn turns_in_file(session: impl Fn(u32) -> u32) -> u64 {
    let folder = Folder::new("growth-turns");
    let database = Sqlite::open(folder.file("agent.db")).await.unwrap();
    make_turns(&database, "ada", session).await;
    database.close().await;
    file_size(&folder) - empty_file().await
}

#[tokio::test]
async fn a_turn_adds_what_is_new_to_a_file() {
    let conversation = turns_in_file(|_| 1).await;
    let alone = turns_in_file(|turn| turn).await;
    check_turns(conversation, alone);
}

#[tokio::test]
async fn a_turn_adds_what_is_new_to_a_server() {
    let Some(server) = Server::start("growth-turns-server") else {
        return;
    };
    let database = server.connect().await;
    let empty = table_size(&server);
    make_turns(&database, "ada", |_| 1).await;
    let with_conversation = table_size(&server);
    make_turns(&database, "bob", |turn| turn).await;
    let alone = table_size(&server) - with_conversation;
    check_turns(with_conversation - empty, alone);
}

#[tokio::test]
async fn a_step_has_its_weight_in_a_file() {
    let folder = Folder::new("growth-steps");
    let database = Sqlite::open(folder.file("agent.db")).await.unwrap();
    let steps = make_runs(&database).await;
    database.close().await;
    check_steps(file_size(&folder) - empty_file().await, steps);
}

#[tokio::test]
async fn a_step_has_its_weight_on_a_server() {
    let Some(server) = Server::start("growth-steps-server") else {
        return;
    };
    let database = server.connect().await;
    let empty = table_size(&server);
    let steps = make_runs(&database).await;
    // The last page of a table is as full as it happens to be, and so is that of each of its
    // indexes.
    let last_pages = PAGE * RUN_TABLES;
    let weight = table_size(&server) - empty;
    check_steps(weight.saturating_sub(last_pages), steps);
}
