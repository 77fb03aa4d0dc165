//! Forks that operators begin from the page.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower_agent::{Agent, AgentRequest, Tool};
use tower_agent_agui::conversations::Roles;
use tower_agent_console::{Console, ConsoleService, Fork, Operator};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{get, json, runs, send, service_for, text};

/// A console, with a run in which 5 were paid after the user has agreed.
struct Desk {
    console: Console,
    service: ConsoleService,
    model: ScriptedModel,
    paid: Arc<AtomicUsize>,
}

fn operator() -> Operator {
    let roles = Roles::new([Fork::ROLE]);
    Operator::new("sam").sees_content().answers_as(roles)
}

impl Desk {
    /// `turns` are those of the forks.
    async fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        let console = Console::new().record_content();
        let paid = Arc::new(AtomicUsize::new(0));
        let count = paid.clone();
        let pay = Tool::function("pay", "Pays.", move |sum: u32| {
            count.fetch_add(1, Ordering::Relaxed);
            format!("paid {sum}")
        });
        let own = [
            Turn::tool("pay", json!({ "value": 5 })),
            Turn::from_text("Paid."),
        ];
        let model = ScriptedModel::new(own.into_iter().chain(turns));
        let agent = Agent::builder(model.clone())
            .name("desk")
            .instructions("Be kind.")
            .tool(pay)
            .on_tool(Approval::when(|request| request.arguments()["value"] != 5))
            .global_callbacks(console.watch())
            .build()
            .unwrap();
        console.agent(&agent);
        let request = AgentRequest::new("Pay 5.").with_run_id("r");
        agent.run(request).await.unwrap();
        Self {
            service: service_for(&console, operator),
            console,
            model,
            paid,
        }
    }

    async fn fork(&self, step: &str, changes: &Value) -> (StatusCode, Value) {
        post(&self.service, &format!("/api/runs/r/fork/{step}"), changes).await
    }

    /// Waits until the latest run has ended.
    async fn ended(&self) -> Value {
        loop {
            let latest = runs(&self.service).await.swap_remove(0);
            if latest["id"] != "r" && !latest["ended"].is_null() {
                return latest;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn questions(&self) -> Vec<Value> {
        let page = json(&self.service, "/api/inbox").await;
        page["questions"].as_array().unwrap().clone()
    }

    /// Answers the one question once it is asked.
    async fn answer(&self, is_approved: bool) -> StatusCode {
        let question = loop {
            if let [question] = &self.questions().await[..] {
                break question.clone();
            }
            tokio::task::yield_now().await;
        };
        let answer = json!({
            "key": question["key"],
            "id": question["id"],
            "answer": { "approved": is_approved },
        });
        post(&self.service, "/api/inbox", &answer).await.0
    }

    fn paid(&self) -> usize {
        self.paid.load(Ordering::Relaxed)
    }
}

async fn post(service: &ConsoleService, path: &str, body: &Value) -> (StatusCode, Value) {
    let request = Request::post(path).header("content-type", "application/json");
    let response = send(service, request.body(body.to_string()).unwrap()).await;
    let status = response.status();
    let body = serde_json::from_str(&text(response).await).unwrap_or_default();
    (status, body)
}

#[tokio::test]
async fn a_fork_from_the_page_is_a_run_that_is_told_from_its_origin() {
    let desk = Desk::new([
        Turn::tool("pay", json!({ "value": 5 })),
        Turn::from_text("Sorry."),
    ])
    .await;
    let step = json(&desk.service, "/api/runs/r/fork/0").await;
    assert_eq!(step["instructions"], "Be kind.");
    let mut messages = step["messages"].clone();
    messages[0]["parts"][0]["text"] = json!("Pay 5, please.");
    let changes = json!({
        "messages": messages,
        "instructions": "Be cold.",
        "settings": { "model": "larger" },
    });
    let (status, begun) = desk.fork("0", &changes).await;
    assert_eq!(status, 201);
    // The page goes there at once.
    let latest = runs(&desk.service).await.swap_remove(0);
    assert_eq!(latest["id"], begun["run"]);
    let run = desk.ended().await;
    assert_eq!(run["id"], begun["run"]);
    assert_eq!(run["status"], "completed");
    assert_eq!(run["fork_of"], json!({ "run": "r", "step": 0 }));
    let origin = json(&desk.service, "/api/runs/r").await;
    assert_eq!(origin["run"]["forks"], json!([begun["run"]]));
    assert_eq!(desk.paid(), 1, "answered from the record");

    let seen = &desk.model.requests()[2];
    assert_eq!(seen.messages()[0].text(), "Pay 5, please.");
    assert_eq!(seen.instructions(), Some("Be cold."));
    assert_eq!(seen.settings().model.as_deref(), Some("larger"));

    let audit = json(&desk.service, "/api/audit").await["rows"].take();
    assert_eq!(audit[0]["action"], "fork");
    assert_eq!(audit[0]["operator"], "sam");
    assert_eq!(audit[0]["status"], 201);
    let about = audit[0]["about"].as_str().unwrap();
    assert!(about.contains("run r from step 0"), "{about}");
    assert!(about.contains(begun["run"].as_str().unwrap()), "{about}");
}

#[tokio::test]
async fn what_a_fork_asks_is_answered_in_the_inbox() {
    for (is_approved, paid) in [(true, 2), (false, 1)] {
        let turns = [
            Turn::tool("pay", json!({ "value": 7 })),
            Turn::from_text("Done."),
        ];
        let desk = Desk::new(turns).await;
        let (status, _) = desk.fork("2", &json!({ "message": "And 7 more." })).await;
        assert_eq!(status, 201);
        assert_eq!(desk.ended().await["status"], "waiting");
        // The user of a fork is whoever may fork; then an operator is asked about the tool.
        assert_eq!(desk.answer(true).await, 202);
        assert_eq!(desk.paid(), 1);
        assert_eq!(desk.answer(is_approved).await, 202);
        while desk.model.requests().len() < 4 || desk.ended().await["status"] != "completed" {
            tokio::task::yield_now().await;
        }
        assert_eq!(desk.paid(), paid);
        assert_eq!(desk.questions().await, [Value::Null; 0]);
    }
}

#[tokio::test]
async fn who_may_not_fork_is_refused_and_written_down() {
    let desk = Desk::new([]).await;
    let refused: [fn() -> Operator; 3] = [
        || Operator::new("rea").sees_content(),
        || Operator::new("rea").answers_as(Roles::new([Fork::ROLE])),
        || {
            Operator::new("rea")
                .sees_content()
                .answers_as(Roles::new(["support"]))
        },
    ];
    for operator in refused {
        let service = service_for(&desk.console, operator);
        assert_eq!(json(&service, "/api/me").await["mayFork"], false);
        assert_eq!(get(&service, "/api/runs/r/fork/0").await.0, 403);
        assert_eq!(
            post(&service, "/api/runs/r/fork/0", &json!({})).await.0,
            403
        );
    }
    let audit = json(&desk.service, "/api/audit").await["rows"].take();
    assert_eq!(audit.as_array().unwrap().len(), 3);
    assert_eq!(audit[0]["status"], 403);

    // From another page, also with the cookies of somebody who may.
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let request = Request::post("/api/runs/r/fork/0")
            .header("content-type", "application/json")
            .header("host", "app.example")
            .header("sec-fetch-mode", "navigate")
            .header(name, value);
        let response = send(&desk.service, request.body("{}".to_owned()).unwrap()).await;
        assert_eq!(response.status(), 403, "{name}");
    }
    let request = Request::post("/api/runs/r/fork/0").header("content-type", "text/plain");
    let response = send(&desk.service, request.body("{}".to_owned()).unwrap()).await;
    assert_eq!(response.status(), 415);
    for (step, changes, status) in [
        ("0", json!({ "message": "x".repeat(5 << 20) }), 413),
        ("0", json!({ "messages": "none" }), 400),
        ("0", json!({ "tools": [] }), 400),
        ("0", json!([]), 400),
        ("3", json!({}), 404),
        ("-1", json!({}), 404),
        ("1e3", json!({}), 404),
    ] {
        assert_eq!(
            desk.fork(step, &changes).await.0,
            status,
            "{step} {changes:.40}"
        );
    }
    let other = post(&desk.service, "/api/runs/%2e%2e/fork/0", &json!({})).await;
    assert_eq!(other.0, 404);
    assert_eq!(desk.model.requests().len(), 2, "nothing has run");

    // An agent that the console was not given is not run.
    let console = Console::new().record_content();
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    let request = AgentRequest::new("?").with_run_id("r");
    agent.run(request).await.unwrap();
    let service = service_for(&console, operator);
    let (status, refusal) = post(&service, "/api/runs/r/fork/0", &json!({})).await;
    assert_eq!(status, 409);
    assert_eq!(refusal["error"]["code"], "unknown_agent");
}
