//! PostgreSQL behind a pooler, which gives each transaction any of its few connections. The
//! contracts of stores, journals and limits are tested with one where they are.

use futures::future::join_all;
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgPool};
use tower::{Layer, ServiceExt};
use tower_agent::Agent;
use tower_agent_conversations::{ConversationKey, SessionLayer};
use tower_agent_durable::Postgres;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::server::Server;

const USERS: usize = 8;
const TURNS: usize = 6;

async fn talk(store: Postgres, user: usize) {
    let turns = (0..TURNS).map(|turn| Turn::from_text(format!("answer {turn} of {user}")));
    let agent = Agent::builder(ScriptedModel::new(turns)).build().unwrap();
    let agent = SessionLayer::new(store).layer(agent);
    let key = ConversationKey::new("pooler", user.to_string(), "1");
    for turn in 0..TURNS {
        let request = key.request(format!("turn {turn}"));
        let response = agent.clone().oneshot(request).await.unwrap();
        assert_eq!(response.text(), format!("answer {turn} of {user}"));
        assert_eq!(response.messages().len(), 2 * (turn + 1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_open_it_at_once_have_more_connections_than_the_server() {
    let Some(server) = Server::start_pooled("pooled") else {
        return;
    };
    // The tables are created by one of them.
    let opened = join_all((0..4).map(|_| server.connect())).await;
    let talks = (0..USERS).map(|user| tokio::spawn(talk(opened[user % 4].clone(), user)));
    for talk in join_all(talks).await {
        talk.unwrap();
    }
    // And opened again, when the server's connections have been used.
    server.connect().await;
}

#[tokio::test]
async fn the_servers_connections_keep_no_setting_of_ours() {
    let Some(server) = Server::start_pooled("pooled-settings") else {
        return;
    };
    let ours = server.connect().await;
    talk(ours, 0).await;
    // Of another program, on a connection that was ours.
    let options: PgConnectOptions = server.url("postgres").parse().unwrap();
    let other = PgPool::connect_with(options.extra_float_digits(None))
        .await
        .unwrap();
    let settings = "SELECT name || ' = ' || setting AS setting FROM pg_settings WHERE name IN \
                    ('idle_in_transaction_session_timeout', 'synchronous_commit') ORDER BY name";
    let rows = sqlx::raw_sql(settings).fetch_all(&other).await.unwrap();
    let rows = rows.iter().map(|row| row.get::<String, _>(0));
    assert_eq!(
        rows.collect::<Vec<_>>(),
        [
            "idle_in_transaction_session_timeout = 0",
            "synchronous_commit = off"
        ]
    );
}

#[tokio::test]
async fn a_pooler_without_transactions_is_an_error_that_says_so() {
    let Some(server) = Server::start_pooled_by("pooled-statements", "statement") else {
        return;
    };
    let error = Postgres::connect(&server.url("postgres"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("statement pooling mode"), "{error}");
}
