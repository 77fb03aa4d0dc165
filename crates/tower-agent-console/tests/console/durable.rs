//! Durable runs on the page: of a list that the program has.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, ready};
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower_agent::error::Result;
use tower_agent::{Agent, AgentRequest, Error, ErrorKind};
use tower_agent_console::{
    Console, ConsoleService, DurableKey, DurableQuery, DurableRun, DurableRuns, Operator,
};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{User, get, json as ask, send, service, service_for, text, user_of};

/// Runs in a list, those that began last first.
#[derive(Clone)]
pub(crate) struct Listed {
    runs: Arc<Mutex<Vec<DurableRun>>>,
    resumed: mpsc::UnboundedSender<(DurableKey, String)>,
}

pub(crate) fn listed(
    runs: Vec<DurableRun>,
) -> (Listed, mpsc::UnboundedReceiver<(DurableKey, String)>) {
    let (resumed, told) = mpsc::unbounded_channel();
    let runs = Arc::new(Mutex::new(runs));
    (Listed { runs, resumed }, told)
}

impl DurableRuns for Listed {
    fn list<'a>(&'a self, query: &'a DurableQuery) -> BoxFuture<'a, Result<Vec<DurableRun>>> {
        let runs = self.runs.lock().unwrap().clone();
        let name = |key: &DurableKey| (key.begun, key.id.clone(), key.user.clone());
        let is_selected = |run: &DurableRun| {
            query.agent.as_ref().is_none_or(|agent| *agent == run.agent)
                && query
                    .status
                    .as_ref()
                    .is_none_or(|status| *status == run.status)
                && query.begun.is_none_or(|begun| begun == run.key.begun)
                && query
                    .after
                    .as_ref()
                    .is_none_or(|after| name(&run.key) < name(after))
        };
        let selected = runs.into_iter().filter(is_selected);
        let selected = selected.take(query.limit as usize).collect();
        ready(Ok(selected)).boxed()
    }

    fn resume(&self, run: DurableKey, agent: Agent) -> BoxFuture<'_, Result<bool>> {
        self.resumed.send((run, agent.name().to_owned())).unwrap();
        ready(Ok(true)).boxed()
    }
}

pub(crate) fn run(begun: u64, id: &str, user: Option<&str>, status: &str) -> DurableRun {
    DurableRun {
        key: DurableKey {
            begun,
            id: id.to_owned(),
            user: user.map(str::to_owned),
        },
        agent: "clerk".to_owned(),
        version: Some("7".to_owned()),
        conversation: None,
        status: status.to_owned(),
        waits_for: Vec::new(),
        error: None,
        updated: begun + 1,
        may_resume: status == "lost",
    }
}

fn clerk(console: &Console) -> Agent {
    Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .name("clerk")
        .global_callbacks(console.watch())
        .build()
        .unwrap()
}

fn operator(console: &Console) -> ConsoleService {
    service_for(console, || Operator::new("sam").resumes_runs())
}

async fn resume(service: &ConsoleService, body: &Value) -> (StatusCode, Value) {
    let request = Request::post("/api/durable/resume").header("content-type", "application/json");
    let response = send(service, request.body(body.to_string()).unwrap()).await;
    let status = response.status();
    (status, serde_json::from_str(&text(response).await).unwrap())
}

fn ids(page: &Value) -> Vec<String> {
    let runs = page["runs"].as_array().unwrap().iter();
    runs.map(|run| run["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn without_any_there_is_no_view() {
    let service = service(&Console::new());
    assert_eq!(ask(&service, "/api/me").await["hasDurable"], false);
    assert_eq!(get(&service, "/api/durable").await.0, 404);
}

#[tokio::test]
async fn a_page_goes_on_behind_its_last_run_and_names_nobody() {
    // Some of one moment, of one id and of one user.
    let mut runs = Vec::new();
    for user in [Some("canary-bob"), Some("canary-ada"), None] {
        runs.push(run(9_000, "same", user, "completed"));
    }
    runs.push(run(9_000, "a~b~c", Some("canary-ada"), "failed"));
    for number in (0..20).rev() {
        let id = format!("early-{number:02}");
        runs.push(run(1_000 + number, &id, Some("canary-ada"), "waiting"));
    }
    let all: Vec<_> = runs.iter().map(|run| run.key.id.clone()).collect();
    let (listed, _told) = listed(runs);
    let console = Console::new().durable_runs(listed.clone());
    let reader = service_for(&console, || Operator::new("rea"));
    assert_eq!(ask(&reader, "/api/me").await["hasDurable"], true);
    for limit in [1, 2, 3, 7, 50] {
        let mut seen = Vec::new();
        let mut before = String::new();
        loop {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("before", &before)
                .append_pair("limit", &limit.to_string())
                .finish();
            let (status, text) = get(&reader, &format!("/api/durable?{query}")).await;
            assert_eq!(status, 200, "{text}");
            assert!(!text.contains("canary"), "{text}");
            let page: Value = serde_json::from_str(&text).unwrap();
            seen.extend(ids(&page));
            match page["next"].as_str() {
                Some(next) => before = next.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, all, "{limit} a page");
    }
    let sees_users = service(&console);
    let page = ask(&sees_users, "/api/durable?limit=2").await;
    assert_eq!(page["runs"][0]["user"], "canary-bob");
    assert_eq!(page["runs"][0]["version"], "7");
    // The place behind which a page goes on may be gone by then.
    let next = page["next"].as_str().unwrap().replace('#', "%23");
    listed
        .runs
        .lock()
        .unwrap()
        .retain(|run| run.key.id != "same");
    let page = ask(&reader, &format!("/api/durable?before={next}&limit=1")).await;
    assert_eq!(ids(&page), ["a~b~c"]);
}

#[tokio::test]
async fn a_status_and_an_agent_select_and_what_cannot_be_read_is_refused() {
    let runs = vec![
        run(3, "c", None, "waiting"),
        run(2, "b", None, "lost"),
        run(1, "a", None, "completed"),
    ];
    let (listed, _told) = listed(runs);
    let service = service(&Console::new().durable_runs(listed));
    let lost = ask(&service, "/api/durable?status=lost&agent=clerk").await;
    assert_eq!(ids(&lost), ["b"]);
    assert_eq!(
        ids(&ask(&service, "/api/durable?agent=other").await),
        [""; 0]
    );
    for query in ["status=x", "before=x", "before=1", "before=x~~a", "limit=x"] {
        let path = format!("/api/durable?{query}");
        assert_eq!(get(&service, &path).await.0, 400, "{query}");
    }
}

#[tokio::test]
async fn a_run_leads_to_what_the_console_has_watched_of_it_and_of_its_user() {
    let runs = vec![
        run(4, "r1", Some("ada"), "completed"),
        run(3, "r1", Some("bob"), "completed"),
        run(2, "r1", None, "completed"),
        run(1, "r2", Some("ada"), "completed"),
    ];
    let (listed, _told) = listed(runs);
    let console = Console::new().user_id(user_of).durable_runs(listed);
    let request = AgentRequest::new("?").with_run_id("r1");
    let request = request.with_extension(User("ada"));
    clerk(&console).run(request).await.unwrap();
    let page = ask(&service(&console), "/api/durable").await;
    let watched: Vec<_> = (0..4).map(|at| page["runs"][at]["run"].clone()).collect();
    assert_eq!(
        watched,
        [json!("r1"), json!(null), json!(null), json!(null)]
    );
}

#[tokio::test]
async fn a_lost_run_goes_on_with_its_agent_and_the_audit_says_who_saw_to_it() {
    let mut elsewhere = run(3, "of another", Some("ada"), "lost");
    elsewhere.agent = "nobody".to_owned();
    let runs = vec![
        elsewhere,
        run(2, "lost", Some("ada"), "lost"),
        run(2, "lost", Some("bob"), "completed"),
    ];
    let (listed, mut told) = listed(runs);
    let console = Console::new().durable_runs(listed);
    console.agent(&clerk(&console));

    let reader = service_for(&console, || Operator::new("rea").manages_data());
    let page = ask(&reader, "/api/durable").await;
    assert_eq!(page["runs"][1]["may_resume"], false);
    let body = json!({ "place": page["runs"][1]["place"] });
    assert_eq!(resume(&reader, &body).await.0, 403);

    let sam = operator(&console);
    let page = ask(&sam, "/api/durable").await;
    assert_eq!(page["runs"][1]["may_resume"], true);
    assert_eq!(resume(&sam, &body).await.0, 202);
    let (key, agent) = told.recv().await.unwrap();
    assert_eq!(key.user.as_deref(), Some("ada"));
    assert_eq!((&*key.id, &*agent), ("lost", "clerk"));

    // One that has ended, one whose agent is not known, and none.
    let of = |at: usize| json!({ "place": page["runs"][at]["place"] });
    let (status, answer) = resume(&sam, &of(2)).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (409, &json!("not_lost"))
    );
    let (status, answer) = resume(&sam, &of(0)).await;
    assert_eq!(
        (status.as_u16(), &answer["error"]["code"]),
        (409, &json!("unknown_agent"))
    );
    assert_eq!(resume(&sam, &json!({ "place": "2~~lost" })).await.0, 404);
    assert_eq!(resume(&sam, &json!({ "place": "lost" })).await.0, 400);
    assert_eq!(
        resume(&sam, &json!({ "place": "2~~lost", "agent": "x" }))
            .await
            .0,
        400
    );
    assert_eq!(get(&sam, "/api/durable/resume").await.0, 404);
    assert!(told.try_recv().is_err(), "nothing else went on");

    let audit = ask(&sam, "/api/audit").await;
    let rows: Vec<_> = audit["rows"].as_array().unwrap().iter().rev().collect();
    assert!(rows.iter().all(|row| row["action"] == "resume"));
    let statuses: Vec<_> = rows
        .iter()
        .map(|row| row["status"].as_u64().unwrap())
        .collect();
    assert_eq!(statuses, [403, 202, 409, 409, 404, 400, 400]);
    assert_eq!(rows[1]["operator"], "sam");
    let about = rows[1]["about"].as_str().unwrap();
    assert!(
        about.starts_with("run lost of #") && !about.contains("ada"),
        "{about}"
    );
}

#[tokio::test]
async fn another_page_resumes_nothing() {
    let (listed, mut told) = listed(vec![run(1, "lost", None, "lost")]);
    let console = Console::new().durable_runs(listed);
    console.agent(&clerk(&console));
    let sam = operator(&console);
    let request = Request::post("/api/durable/resume")
        .header("host", "app.example")
        .header("origin", "http://evil.example");
    let body = json!({ "place": "1~~lost" }).to_string();
    let response = send(&sam, request.body(body).unwrap()).await;
    assert_eq!(response.status(), 403);
    let request = Request::post("/api/durable/resume");
    let body = json!({ "place": "1~~lost" }).to_string();
    let response = send(&sam, request.body(body).unwrap()).await;
    assert_eq!(response.status(), 415, "a form sends no JSON");
    assert!(told.try_recv().is_err());
    let nobody = console.into_service(|_| None);
    assert_eq!(get(&nobody, "/api/durable").await.0, 403);
}

/// A list that fails, or never answers.
struct Away {
    hangs: bool,
}

impl DurableRuns for Away {
    fn list<'a>(&'a self, _: &'a DurableQuery) -> BoxFuture<'a, Result<Vec<DurableRun>>> {
        if self.hangs {
            return pending().boxed();
        }
        ready(Err(Error::new(ErrorKind::Store, "canary"))).boxed()
    }

    fn resume(&self, _: DurableKey, _: Agent) -> BoxFuture<'_, Result<bool>> {
        pending().boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_or_hangs_is_said_to() {
    for hangs in [true, false] {
        let service = service(&Console::new().durable_runs(Away { hangs }));
        let (status, text) = get(&service, "/api/durable").await;
        assert_eq!(status, 503);
        assert!(!text.contains("canary"), "{text}");
    }
}
