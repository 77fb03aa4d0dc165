//! The runs of a console in a database: they outlive it, others see them, and they go.

use axum::http;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::{Agent, AgentRequest, RunContext, Tool};
use tower_agent_console::{Console, ConsoleService, Operator, RunStore};
use tower_agent_durable::Sqlite;
use tower_agent_test::{ScriptedModel, Turn};

use crate::support::folder::Folder;
use crate::support::place::Place;
use crate::support::server::Server;

struct User(&'static str);

fn user_of(run: &RunContext) -> Option<String> {
    Some(run.extensions().get::<User>()?.0.to_owned())
}

/// A console of a process of its own.
fn console(database: impl RunStore) -> Console {
    Console::new().stored_in(database).user_id(user_of)
}

/// An agent that calls a tool once, and then answers with a secret.
fn agent(console: &Console) -> Agent {
    let model = ScriptedModel::new([
        Turn::tool("echo", json!({ "value": "the argument" })),
        Turn::from_text("the secret answer\0"),
    ]);
    Agent::builder(model)
        .name("teller")
        .tool(Tool::function("echo", "Repeats.", |text: String| text))
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

async fn run(console: &Console, id: &str, user: &'static str) {
    let request = AgentRequest::new("?").with_run_id(id);
    let request = request.with_extension(User(user));
    agent(console).run(request).await.unwrap();
    assert_eq!(console.flush().await, 0);
}

fn service(console: &Console) -> ConsoleService {
    let console = console.clone();
    console.into_service(|_| {
        let sam = Operator::new("sam");
        Some(sam.sees_content().sees_users().manages_data())
    })
}

pub(crate) async fn get(console: &Console, path: &str) -> (u16, Value) {
    let request = http::Request::get(path).body(Full::<Bytes>::default());
    let response = service(console).oneshot(request.unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// The ids of the list at this address.
async fn ids(console: &Console, query: &str) -> Vec<String> {
    let (status, page) = get(console, &format!("/api/runs?{query}")).await;
    assert_eq!(status, 200, "{page}");
    let runs = page["runs"].as_array().unwrap();
    let id = |run: &Value| run["id"].as_str().unwrap().to_owned();
    runs.iter().map(id).collect()
}

/// The id that the run has itself, without the name of its console.
fn own(id: &str) -> &str {
    id.split('~').next().unwrap()
}

async fn shows_the_runs_of_a_process_before(place: &impl Place<Journal: RunStore + Clone>) {
    let before = console(place.open().await).record_content();
    run(&before, "r1", "ada").await;
    run(&before, "r2", "bob").await;
    let (_, was) = get(&before, "/api/runs/r1").await;
    let tool = was["entries"].as_array().unwrap();
    let tool = tool.iter().position(|entry| entry["kind"] == "tool");
    let path = format!("/content/{}", tool.unwrap());
    let (_, texts) = get(&before, &format!("/api/runs/r1{path}")).await;
    assert_eq!(texts["input"], r#"{"value":"the argument"}"#);
    drop(before);

    let after = console(place.open().await);
    let listed = ids(&after, "").await;
    assert_eq!(
        listed.iter().map(|id| own(id)).collect::<Vec<_>>(),
        ["r2", "r1"]
    );
    // By the id of the run alone, as a log has it, and by the one of the list.
    for id in ["r1", &*listed[1]] {
        let (_, is) = get(&after, &format!("/api/runs/{id}")).await;
        assert_eq!(is["entries"], was["entries"]);
        assert_eq!(is["run"]["user"], "ada");
        assert_eq!(is["run"]["usage"], was["run"]["usage"]);
        let (_, content) = get(&after, &format!("/api/runs/{id}{path}")).await;
        assert_eq!(content, texts);
    }
    let ended = get(&after, "/api/live?run=r1").await;
    assert_eq!(ended.0, 204, "it does not change any more");
    assert_eq!(ids(&after, "agent=teller&status=completed").await.len(), 2);
    assert_eq!(ids(&after, "agent=other").await.len(), 0);
    assert_eq!(ids(&after, "status=failed").await.len(), 0);
}

async fn shows_what_two_processes_do(place: &impl Place<Journal: RunStore + Clone>) {
    let one = console(place.open().await);
    let other = console(place.open().await);
    run(&one, "r1", "ada").await;
    run(&other, "r1", "bob").await;
    run(&one, "r2", "ada").await;
    for (console, own_runs) in [(&one, ["r2", "r1"]), (&other, ["r1", ""])] {
        let listed = ids(console, "").await;
        assert_eq!(
            listed.iter().map(|id| own(id)).collect::<Vec<_>>(),
            ["r2", "r1", "r1"]
        );
        let here = listed.iter().filter(|id| own_runs.contains(&&***id));
        assert_eq!(
            here.count(),
            own_runs.iter().filter(|id| !id.is_empty()).count()
        );
        // The two that have the same id are told apart.
        let mut users = Vec::new();
        for id in &listed {
            let (_, run) = get(console, &format!("/api/runs/{id}")).await;
            users.push(run["run"]["user"].as_str().unwrap().to_owned());
        }
        assert_eq!(users, ["ada", "bob", "ada"]);
    }

    // In pages, none is left out and none comes twice.
    let mut seen = Vec::new();
    let mut before = String::new();
    loop {
        let (_, page) = get(&other, &format!("/api/runs?limit=1&before={before}")).await;
        seen.extend(page["runs"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => before = next.to_owned(),
            None => break,
        }
    }
    let users: Vec<_> = seen.iter().map(|run| run["user"].clone()).collect();
    assert_eq!(users, ["ada", "bob", "ada"]);
}

async fn removes_from_all_processes(place: &impl Place<Journal: RunStore + Clone>) {
    let one = console(place.open().await);
    let other = console(place.open().await);
    for (id, user) in [("r1", "ada"), ("r2", "bob"), ("r3", "ada"), ("r4", "bob")] {
        run(&one, id, user).await;
    }
    let exported = other.export_user("ada").await.unwrap();
    assert_eq!(exported.len(), 2);
    assert_eq!(exported[0]["run"]["user"], "ada");
    assert_eq!(exported[0]["entries"].as_array().unwrap().len(), 6);

    assert_eq!(other.delete_user("ada").await.unwrap(), 2);
    assert!(other.delete_run("r4").await.unwrap());
    assert!(!other.delete_run("r4").await.unwrap());
    assert_eq!(other.delete_user("").await.unwrap(), 0);
    for console in [&one, &other] {
        let listed = ids(console, "").await;
        assert_eq!(listed.iter().map(|id| own(id)).collect::<Vec<_>>(), ["r2"]);
        assert_eq!(get(console, "/api/runs/r1").await.0, 404);
        assert_eq!(get(console, "/api/runs/r4").await.0, 404);
    }
    // What was removed does not come back.
    run(&one, "r5", "bob").await;
    assert_eq!(ids(&other, "").await.len(), 2);
    assert_eq!(one.delete_user("bob").await.unwrap(), 2);
    assert_eq!(ids(&other, "").await.len(), 0);
}

async fn keeps_within_its_bounds(place: &impl Place<Journal: RunStore + Clone>) {
    let database = place.open().await;
    let console = console(database.clone()).max_runs(3);
    for id in ["r1", "r2", "r3", "r4", "r5"] {
        run(&console, id, "ada").await;
    }
    // It trims behind the write that `flush` waits for: the next one comes after.
    run(&console, "r6", "ada").await;
    let after = Console::new().stored_in(database.clone());
    let left = ids(&after, "").await.len();
    assert!((3..=4).contains(&left), "{left} runs of at most 3");

    let bounds = |runs, bytes, oldest| tower_agent_console::StoredBounds {
        runs,
        bytes,
        audit: 2,
        oldest,
    };
    database.trim(bounds(2, u64::MAX, 0)).await.unwrap();
    assert_eq!(ids(&after, "").await.len(), 2);
    database.trim(bounds(2, 1, 0)).await.unwrap();
    let last = ids(&after, "").await;
    assert_eq!(last.len(), 1, "the last one stays, however large it is");
    assert_eq!(own(&last[0]), "r6");
    database.trim(bounds(2, u64::MAX, u64::MAX)).await.unwrap();
    assert_eq!(ids(&after, "").await.len(), 0, "it is too old");
}

async fn delete(console: &Console, run: &str) -> u16 {
    let request = http::Request::post("/api/delete").header("content-type", "application/json");
    let body = Full::<Bytes>::from(json!({ "run": run }).to_string());
    let response = service(console).oneshot(request.body(body).unwrap()).await;
    response.unwrap().status().as_u16()
}

async fn keeps_who_has_done_what(place: &impl Place<Journal: RunStore + Clone>) {
    let database = place.open().await;
    let before = console(database.clone());
    run(&before, "r1", "ada").await;
    assert_eq!(delete(&before, "r1").await, 200);
    assert_eq!(delete(&before, "r1").await, 404);
    assert_eq!(before.flush().await, 0);
    drop(before);

    let after = console(place.open().await);
    assert_eq!(delete(&after, "none\0").await, 404);
    // Whether it is written by now or not.
    let mut seen = Vec::new();
    let mut place_before = String::new();
    loop {
        let path = format!("/api/audit?limit=1&before={place_before}");
        let (status, page) = get(&after, &path).await;
        assert_eq!(status, 200, "{page}");
        assert_eq!(page["unstored"], 0);
        seen.extend(page["rows"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => place_before = next.to_owned(),
            None => break,
        }
    }
    let told = seen.iter().map(|row| {
        assert_eq!(
            (&row["operator"], &row["action"]),
            (&json!("sam"), &json!("delete"))
        );
        (
            row["about"].as_str().unwrap(),
            row["status"].as_u64().unwrap(),
        )
    });
    let told: Vec<_> = told.collect();
    assert_eq!(
        told,
        [("run none\u{fffd}", 404), ("run r1", 404), ("run r1", 200)]
    );

    assert_eq!(after.flush().await, 0);
    let bounds = tower_agent_console::StoredBounds {
        runs: 10,
        bytes: u64::MAX,
        audit: 2,
        oldest: 0,
    };
    database.trim(bounds).await.unwrap();
    let other = console(database);
    let (_, page) = get(&other, "/api/audit").await;
    assert_eq!(page["rows"].as_array().unwrap()[..], seen[..2]);
}

/// Each in a database of its own, of both kinds.
macro_rules! in_both {
    ($($what:ident as $sqlite:ident, $postgres:ident;)*) => {$(
        #[tokio::test]
        async fn $sqlite() {
            $what(&crate::support::place::InFile::new()).await;
        }

        #[tokio::test]
        async fn $postgres() {
            let Some(server) = Server::start(stringify!($postgres)) else {
                return;
            };
            $what(&crate::support::place::OnServer::new(&server)).await;
        }
    )*};
}

in_both! {
    shows_the_runs_of_a_process_before as sqlite_outlives_a_process, postgres_outlives_a_process;
    shows_what_two_processes_do as sqlite_is_shared, postgres_is_shared;
    removes_from_all_processes as sqlite_removes, postgres_removes;
    keeps_within_its_bounds as sqlite_is_bounded, postgres_is_bounded;
    keeps_who_has_done_what as sqlite_keeps_the_audit, postgres_keeps_the_audit;
}

/// Returns whether the text is in a file of the folder.
fn is_on_disk(folder: &Folder, text: &str) -> bool {
    std::fs::read_dir(folder.file("")).unwrap().any(|file| {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    })
}

#[tokio::test]
async fn texts_are_in_the_files_only_if_they_are_recorded_and_until_they_are_deleted() {
    let folder = Folder::new("console-canary");
    let silent = console(Sqlite::open(folder.file("silent.db")).await.unwrap());
    run(&silent, "r1", "ada").await;
    assert!(!is_on_disk(&folder, "the secret answer"));
    assert!(!is_on_disk(&folder, "the argument"));
    assert!(is_on_disk(&folder, "ada"), "whom a deletion asks for");

    let telling = console(Sqlite::open(folder.file("telling.db")).await.unwrap());
    let telling = telling.record_content();
    run(&telling, "r2", "ada").await;
    assert!(is_on_disk(&folder, "the secret answer"));
    assert!(is_on_disk(&folder, "the argument"));
    telling.delete_user("ada").await.unwrap();
    assert!(!is_on_disk(&folder, "the secret answer"));
    assert!(!is_on_disk(&folder, "the argument"));
}

#[tokio::test]
async fn the_rest_of_a_persons_data_goes_with_theirs() {
    let database = Sqlite::in_memory().await.unwrap();
    let console = console(database.clone()).record_content();
    run(&console, "r1", "ada").await;
    run(&console, "r2", "bob").await;
    let data = database.export_user("ada").await.unwrap();
    assert_eq!(data.watched.len(), 1);
    assert_eq!(data.watched[0].entries.len(), 6);
    let text = serde_json::to_string(&data).unwrap();
    assert!(text.contains("the secret answer"), "{text}");
    assert_eq!(database.delete_user("ada").await.unwrap(), 1);
    assert_eq!(ids(&console, "").await, ["r2"]);
}

/// Prints how long the first page takes: `cargo test -p tower-agent-durable --test durable
/// --release -- --ignored --nocapture first_page`.
#[tokio::test]
#[ignore = "a measurement"]
async fn the_first_page_of_ten_thousand_runs() {
    use tower_agent_console::{StoredEntry, StoredHead, StoredKey, StoredRun};

    let folder = Folder::new("console-many");
    let database = Sqlite::open(folder.file("many.db")).await.unwrap();
    let one = console(database.clone());
    run(&one, "r", "ada").await;
    let query = tower_agent_console::StoredQuery {
        limit: 1,
        ..Default::default()
    };
    let made = database.list(&query).await.unwrap().remove(0);
    let entries = database.entries(&made.key, 0, 10, true).await.unwrap();
    for number in 0..10_000 {
        let head = StoredHead {
            key: StoredKey {
                console: "other".to_owned(),
                number,
            },
            begun: made.begun - 10_000 + number,
            ..made.clone()
        };
        let entries = entries.iter().cycle().zip(0..60);
        let entries = entries.map(|(entry, position)| StoredEntry {
            position,
            ..entry.clone()
        });
        let entries = entries.collect();
        let run = StoredRun {
            is_new: true,
            head,
            bytes: 10_000,
            entries,
        };
        database.put(run).await.unwrap();
    }
    let service = service(&one);
    for query in [
        "",
        "",
        "agent=teller",
        "agent=nobody",
        "status=failed",
        "before=0~x.0",
    ] {
        let begun = std::time::Instant::now();
        let request = http::Request::get(format!("/api/runs?{query}"));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let taken = begun.elapsed();
        println!(
            "the first page of `?{query}`: {taken:?}, {} bytes",
            bytes.len()
        );
    }
}
