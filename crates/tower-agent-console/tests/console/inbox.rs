//! Questions that wait, answered on the page.

use futures::StreamExt;
use http::{Request, StatusCode};
use serde_json::{Value, json};
use tower_agent::{Agent, Tool};
use tower_agent_agui::conversations::Roles;
use tower_agent_agui::{AgUi, Message, RunAgentInput};
use tower_agent_console::{Console, ConsoleService, Operator};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{get, json, send, text};

fn support(console: &Console) -> AgUi {
    let model = ScriptedModel::new([
        Turn::tool("refund", json!({ "cents": 4990 })),
        Turn::from_text("Done."),
    ]);
    let agent = Agent::builder(model)
        .tool(Tool::function("refund", "Pays back.", |_: Value| "paid"))
        .on_tool(Approval::of_tools(["refund"]).by_role("support"))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    AgUi::builder(agent).allow_partial_history().build()
}

async fn ask(agui: &AgUi) {
    let message = Message::user("m1", "My money back.");
    let input = RunAgentInput::new("t1", "r1", [message]);
    let run = agui.run_for("Ada", input).await.unwrap();
    run.for_each(|_| async {}).await;
}

fn service(console: Console, operator: fn() -> Operator) -> ConsoleService {
    console.into_service(move |_| Some(operator()))
}

async fn post(service: &ConsoleService, body: &Value) -> (StatusCode, String) {
    let request = Request::post("/api/inbox").header("content-type", "application/json");
    let response = send(service, request.body(body.to_string()).unwrap()).await;
    (response.status(), text(response).await)
}

#[tokio::test]
async fn a_question_is_answered_and_the_answer_is_audited() {
    let console = Console::new();
    let agui = support(&console);
    ask(&agui).await;
    let sam = || Operator::new("sam").answers_as(Roles::new(["support"]));
    let console = console.inbox(agui);
    let service = service(console, sam);
    let page = json(&service, "/api/inbox").await;
    let question = &page["questions"][0];
    assert_eq!(question["payload"]["arguments"], json!({ "cents": 4990 }));

    let answer =
        json!({ "key": question["key"], "id": question["id"], "answer": { "approved": true } });
    assert_eq!(post(&service, &answer).await.0, 202);
    assert_eq!(json(&service, "/api/inbox").await["questions"], json!([]));
    // The agent may have ended by now, or not.
    let again = post(&service, &answer).await.0;
    assert!(
        matches!(again.as_u16(), 404 | 409),
        "answered once: {again}"
    );

    let audit = json(&service, "/api/audit").await["rows"].take();
    assert_eq!(audit[1]["operator"], "sam");
    assert_eq!(audit[1]["status"], 202);
    let about = audit[1]["about"].as_str().unwrap();
    assert!(about.contains(question["id"].as_str().unwrap()), "{about}");
    assert!(about.contains("t1") && !about.contains("Ada"), "{about}");
    assert_eq!(audit[0]["status"], again.as_u16(), "what was refused, too");
}

#[tokio::test]
async fn without_a_role_there_is_no_question_and_no_answer() {
    let console = Console::new();
    let agui = support(&console);
    ask(&agui).await;
    let console = console.inbox(agui);
    let reader = service(console.clone(), || Operator::new("rea").sees_content());
    assert_eq!(get(&reader, "/api/inbox").await.0, 403);
    assert_eq!(post(&reader, &json!({})).await.0, 403);
    assert_eq!(json(&reader, "/api/me").await["mayAnswer"], false);

    let other = service(console, || {
        Operator::new("o").answers_as(Roles::new(["billing"]))
    });
    assert_eq!(json(&other, "/api/inbox").await["questions"], json!([]));
}

#[tokio::test]
async fn an_answer_from_another_page_is_refused() {
    let console = Console::new();
    let agui = support(&console);
    ask(&agui).await;
    let sam = || Operator::new("sam").answers_as(Roles::new(["support"]));
    let service = service(console.inbox(agui), sam);
    let question = json(&service, "/api/inbox").await["questions"][0].clone();
    let answer =
        json!({ "key": question["key"], "id": question["id"], "answer": { "approved": true } });
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let request = Request::post("/api/inbox")
            .header("content-type", "application/json")
            .header("host", "app.example")
            .header("sec-fetch-mode", "navigate")
            .header(name, value);
        let response = send(&service, request.body(answer.to_string()).unwrap()).await;
        assert_eq!(response.status(), 403, "{name}");
    }
    // A form needs no permission to be sent, and sends no JSON.
    let request = Request::post("/api/inbox").header("content-type", "text/plain");
    let response = send(&service, request.body(answer.to_string()).unwrap()).await;
    assert_eq!(response.status(), 415);
    let large =
        json!({ "key": question["key"], "id": question["id"], "answer": "x".repeat(10 << 20) });
    assert_eq!(post(&service, &large).await.0, 413);
    assert_eq!(
        json(&service, "/api/inbox").await["questions"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}
