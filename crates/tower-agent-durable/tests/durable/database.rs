//! Database files: what they hold, and who may open them.

use std::net::Ipv4Addr;

use tokio::net::TcpSocket;
use tower_agent::Effect;
use tower_agent_conversations::{Append, ConversationKey, ConversationStore};

use tower_agent_durable::{Postgres, Sqlite, StoreError};

use crate::support::folder::Folder;
use crate::support::server::Server;
use crate::support::{Count, calling, counting, durable, request};

#[tokio::test]
async fn a_file_is_created_and_opened_again_also_twice_at_once() {
    let folder = Folder::new("opened");
    let one = Sqlite::open(folder.file("a.db")).await.unwrap();
    let other = Sqlite::open(folder.file("a.db")).await.unwrap();
    one.close().await;
    other.close().await;
    Sqlite::open(folder.file("a.db")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_is_created_by_several_at_once() {
    let folder = Folder::new("created-at-once");
    for round in 0..40 {
        let open = |_| tokio::spawn(Sqlite::open(folder.file(&format!("{round}.db"))));
        for opened in futures::future::join_all((0..4).map(open)).await {
            opened.unwrap().unwrap().close().await;
        }
    }
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused_and_stays_as_it_is() {
    let folder = Folder::new("newer");
    let path = folder.file("a.db");
    Sqlite::open(&path).await.unwrap().close().await;
    let newer = sqlx::SqlitePool::connect(path.to_str().unwrap())
        .await
        .unwrap();
    sqlx::query("INSERT INTO tower_agent_migrations (version) VALUES (99)")
        .execute(&newer)
        .await
        .unwrap();
    newer.close().await;
    for _ in 0..2 {
        let refused = Sqlite::open(&path).await.unwrap_err();
        let StoreError::NewerFormat { found, newest } = refused else {
            panic!("{refused}")
        };
        assert_eq!((found, newest), (99, 3));
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_an_error() {
    let folder = Folder::new("unopened");
    let error = Sqlite::open(folder.file("missing/a.db")).await.unwrap_err();
    assert!(
        error.to_string().starts_with("the database failed: "),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_an_error_that_says_so() {
    // Bound, so that nobody else has its port, and deaf.
    let deaf = TcpSocket::new_v4().unwrap();
    deaf.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let url = format!(
        "postgres://postgres@{}/postgres",
        deaf.local_addr().unwrap()
    );
    let error = Postgres::connect(&url).await.unwrap_err();
    assert!(
        error.to_string().contains("the server cannot be reached"),
        "{error}"
    );
}

#[tokio::test]
async fn a_write_that_is_dropped_at_any_point_is_whole_or_was_never_made() {
    let store = Sqlite::in_memory().await.unwrap();
    let key = ConversationKey::new("", "", "1");
    let mut version = 0;
    for polls in 0..20 {
        let append = Append::new("{}", 0).entries(vec!["1".to_owned(), "2".to_owned()]);
        let mut write = Box::pin(store.append(&key, version, append));
        for _ in 0..polls {
            if futures::poll!(&mut write).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(write);
        version = loop {
            let session = store.load(&key, 0).await.unwrap().unwrap_or_default();
            assert!(matches!(session.entries.len(), 0 | 2));
            match store
                .append(&key, session.version, Append::new("{}", 0))
                .await
            {
                // It has come in between.
                Err(error) if error.is_conflict() => {}
                written => break written.unwrap(),
            }
        };
    }
}

#[tokio::test]
async fn a_read_that_is_dropped_at_any_point_leaves_a_connection_that_can_write() {
    let Some(server) = Server::start("dropped-reads") else {
        return;
    };
    let options = Postgres::options().max_connections(1);
    let store = options.connect(&server.url("postgres")).await.unwrap();
    let key = ConversationKey::new("", "", "1");
    let mut version = 0;
    for polls in 0..20 {
        let mut read = Box::pin(store.load(&key, 0));
        for _ in 0..polls {
            if futures::poll!(&mut read).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(read);
        let append = store.append(&key, version, Append::new("{}", 0));
        version = append.await.unwrap();
    }
}

#[tokio::test]
async fn an_abandoned_run_and_an_abandoned_write_block_no_other_write() {
    let key = |name: &str| ConversationKey::new("", "", name);
    for polls in 0..30 {
        let store = Sqlite::in_memory().await.unwrap();
        let look = counting("look", Effect::Pure, &Count::default());
        let agent = durable(calling(&["look"], &Count::default()), store.clone()).tool(look);
        let (agent, stalled) = (agent.build().unwrap(), key("stalled"));
        let mut run = Box::pin(agent.run(request()));
        let mut write = Box::pin(store.append(&stalled, 0, Append::new("{}", 0)));
        for _ in 0..polls {
            if futures::poll!(&mut run).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let _ = futures::poll!(&mut write);
        store
            .append(&key("other"), 0, Append::new("{}", 0))
            .await
            .unwrap();
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_and_its_log_are_private_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;

    use tower_agent_conversations::{Append, ConversationKey, ConversationStore};

    use tower_agent_durable::Sqlite;

    let folder = crate::support::folder::Folder::new("private");
    let path = folder.file("sessions.db");
    let database = Sqlite::open(&path).await.unwrap();
    let key = ConversationKey::new("shop", "ada", "1");
    database
        .append(&key, 0, Append::new("{}", 0))
        .await
        .unwrap();
    for suffix in ["", "-wal", "-shm"] {
        let file = folder.file(&format!("sessions.db{suffix}"));
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
    database.close().await;
    // What the owner has chosen stays.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    Sqlite::open(&path).await.unwrap().close().await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
}
