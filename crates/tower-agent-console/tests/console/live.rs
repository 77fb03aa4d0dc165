//! Live views.

use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tower_agent::Agent;
use tower_agent_console::{Console, ConsoleService, ResponseBody};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{json, runs, send, service};

fn agent(console: &Console) -> Agent {
    Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

async fn open(service: &ConsoleService, path: &str, last: Option<&str>) -> ResponseBody {
    let mut request = Request::get(path);
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let response = send(service, request.body(String::new()).unwrap()).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    response.into_body()
}

struct Event {
    name: String,
    id: String,
    data: Value,
}

async fn next(body: &mut ResponseBody) -> Option<Event> {
    loop {
        let frame = body.frame().await?.unwrap();
        let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
        if text.starts_with(':') {
            continue;
        }
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().to_owned()
        };
        return Some(Event {
            name: field("event: "),
            id: field("id: "),
            data: serde_json::from_str(&field("data: ")).unwrap(),
        });
    }
}

#[tokio::test]
async fn a_reader_is_told_what_has_changed_since_its_page() {
    let console = Console::new();
    let service = service(&console);
    let agent = agent(&console);
    agent.run("?").await.unwrap();
    let page = json(&service, "/api/runs").await;
    let path = format!("/api/live?since={}", page["cursor"].as_str().unwrap());
    let mut body = open(&service, &path, None).await;

    agent.run("?").await.unwrap();
    let event = next(&mut body).await.unwrap();
    assert_eq!(event.name, "change");
    let numbers = event.data["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["number"]);
    assert_eq!(numbers.collect::<Vec<_>>(), [2], "the first is known");
}

#[tokio::test]
async fn a_reader_that_was_away_misses_nothing() {
    let console = Console::new();
    let service = service(&console);
    let agent = agent(&console);
    let mut body = open(&service, "/api/live", None).await;
    let first = next(&mut body).await.unwrap();
    assert_eq!(first.name, "reset", "it has seen nothing of this console");
    drop(body);

    for _ in 0..3 {
        agent.run("?").await.unwrap();
    }
    let mut body = open(&service, "/api/live", Some(&first.id)).await;
    let event = next(&mut body).await.unwrap();
    assert_eq!(event.name, "change");
    let runs = event.data["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        assert_eq!(
            run["status"], "completed",
            "as it is now, and not step by step"
        );
    }
}

#[tokio::test]
async fn a_reader_of_another_console_starts_anew() {
    let before = Console::new();
    agent(&before).run("?").await.unwrap();
    let mut body = open(&service(&before), "/api/live", None).await;
    let seen = next(&mut body).await.unwrap().id;

    let after = Console::new();
    agent(&after).run("?").await.unwrap();
    let mut body = open(&service(&after), "/api/live", Some(&seen)).await;
    let event = next(&mut body).await.unwrap();
    assert_eq!(event.name, "reset");
    assert_eq!(event.data["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn many_changes_come_in_pieces_and_all_of_them() {
    let console = Console::new();
    let service = service(&console);
    let agent = agent(&console);
    for _ in 0..700 {
        agent.run("?").await.unwrap();
    }
    let mut body = open(&service, "/api/live", None).await;
    let mut seen = Vec::new();
    while seen.len() < 700 {
        let event = next(&mut body).await.unwrap();
        let runs = event.data["runs"].as_array().unwrap();
        seen.extend(runs.iter().map(|run| run["number"].as_u64().unwrap()));
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=700).collect::<Vec<_>>());
}

#[tokio::test]
async fn one_run_is_followed_by_its_entries() {
    let console = Console::new();
    let service = service(&console);
    let agent = agent(&console);
    agent.run("?").await.unwrap();
    let id = runs(&service).await[0]["id"].as_str().unwrap().to_owned();
    let page = json(&service, &format!("/api/runs/{id}")).await;
    let cursor = page["cursor"].as_str().unwrap().to_owned();

    let mut body = open(&service, &format!("/api/live?run={id}"), None).await;
    let event = next(&mut body).await.unwrap();
    let mut entries = event.data["entries"].as_array().unwrap().clone();
    // They come in the order of their changes.
    entries.sort_by_key(|entry| entry["n"].as_u64());
    assert_eq!(Value::Array(entries), page["entries"]);
    assert_eq!(event.id, cursor);
}

#[tokio::test]
async fn a_run_that_has_gone_is_told() {
    let console = Console::new().max_runs(1);
    let service = service(&console);
    let agent = agent(&console);
    agent.run("?").await.unwrap();
    let id = runs(&service).await[0]["id"].as_str().unwrap().to_owned();
    let mut body = open(&service, &format!("/api/live?run={id}"), None).await;
    next(&mut body).await.unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(next(&mut body).await.unwrap().name, "gone");
}

#[tokio::test]
async fn a_closed_console_lets_its_readers_go() {
    let console = Console::new();
    let service = service(&console);
    let mut body = open(&service, "/api/live", None).await;
    next(&mut body).await.unwrap();
    console.close();
    assert!(next(&mut body).await.is_none());
}

#[tokio::test]
async fn one_operator_has_so_many_live_views() {
    let service = service(&Console::new());
    let mut bodies = Vec::new();
    for _ in 0..16 {
        bodies.push(open(&service, "/api/live", None).await);
    }
    let request = || Request::get("/api/live").body(String::new()).unwrap();
    assert_eq!(send(&service, request()).await.status(), 429);
    bodies.pop();
    assert_eq!(send(&service, request()).await.status(), 200);
}

#[tokio::test]
async fn a_reader_of_the_list_is_told_which_runs_have_gone() {
    let console = Console::new().max_runs(1);
    let service = service(&console);
    let agent = agent(&console);
    agent.run("?").await.unwrap();
    let mut body = open(&service, "/api/live", None).await;
    let first = next(&mut body).await.unwrap();
    agent.run("?").await.unwrap();
    let event = next(&mut body).await.unwrap();
    assert_eq!(event.data["removed"][0], first.data["runs"][0]["id"]);
    assert_eq!(event.data["gone"], 1);
}
