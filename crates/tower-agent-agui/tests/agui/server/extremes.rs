//! Every field of a client's input, with the longest and the oddest that a client might say.

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::Agent;
use tower_agent::message::CallIds;
use tower_agent_agui::AgUi;
use tower_agent_test::{ScriptedModel, Turn};

use super::client::{parse, post};

/// What the model says: enough pieces that an id in each of them shows.
const WORDS: usize = 200;

fn server() -> AgUi {
    let model = ScriptedModel::always(Turn::from_text("word ".repeat(WORDS))).chunk_size(5);
    AgUi::new(Agent::builder(model).build().unwrap())
}

/// An input in which a value stands in one field.
type Place = (&'static str, fn(Value) -> Value);

fn input(field: &str, value: Value) -> Value {
    let mut input = json!({
        "threadId": "t",
        "runId": "r",
        "messages": [{ "id": "u", "role": "user", "content": "Hello" }],
    });
    input[field] = value;
    input
}

fn user(field: &str, value: Value) -> Value {
    let mut message = json!({ "id": "u", "role": "user", "content": "Hello" });
    message[field] = value;
    input("messages", json!([message]))
}

fn call(id: Value, name: Value, arguments: Value, result: Value) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    input(
        "messages",
        json!([
            { "id": "u", "role": "user", "content": "Hello" },
            { "id": "a", "role": "assistant",
              "toolCalls": [{ "id": id, "type": "function", "function": function }] },
            { "id": "x", "role": "tool", "toolCallId": id, "content": result },
        ]),
    )
}

fn tool(field: &str, value: Value) -> Value {
    let mut tool = json!({ "name": "pick", "description": "Picks." });
    tool[field] = value;
    input("tools", json!([tool]))
}

const PLACES: [Place; 25] = [
    ("threadId", |value| input("threadId", value)),
    ("runId", |value| input("runId", value)),
    ("parentRunId", |value| input("parentRunId", value)),
    ("protocolVersion", |value| input("protocolVersion", value)),
    ("state", |value| input("state", json!({ "a": value }))),
    ("a key of the state", |value| {
        let key = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        input("state", json!({ key: 1 }))
    }),
    ("forwardedProps", |value| input("forwardedProps", value)),
    ("another field", |value| input("other", value)),
    ("context", |value| {
        input("context", json!([{ "description": value, "value": value }]))
    }),
    ("id", |value| user("id", value)),
    ("content", |value| user("content", value)),
    ("name", |value| user("name", value)),
    ("encryptedValue", |value| user("encryptedValue", value)),
    ("metadata", |value| user("metadata", json!({ "a": value }))),
    ("subagentRunId", |value| user("subagentRunId", value)),
    ("id of a call", |value| {
        call(value, json!("f"), json!("{}"), json!(""))
    }),
    ("name of a call", |value| {
        call(json!("c"), value, json!("{}"), json!(""))
    }),
    ("arguments of a call", |value| {
        call(json!("c"), json!("f"), value, json!(""))
    }),
    ("result of a call", |value| {
        call(json!("c"), json!("f"), json!("{}"), value)
    }),
    ("id of a result alone", |value| {
        let result = json!({ "id": "x", "role": "tool", "toolCallId": value, "content": "" });
        input("messages", json!([result]))
    }),
    ("name of a tool", |value| tool("name", value)),
    ("description of a tool", |value| tool("description", value)),
    ("schema of a tool", |value| {
        tool("parameters", json!({ "properties": { "a": value } }))
    }),
    ("interruptId", |value| {
        input(
            "resume",
            json!([{ "interruptId": value, "status": "resolved", "payload": {} }]),
        )
    }),
    ("payload", |value| {
        input(
            "resume",
            json!([{ "interruptId": "i", "status": "resolved", "payload": value }]),
        )
    }),
];

/// The places of ids and names, with what each may be long.
const IDS: [(&str, usize); 9] = [
    ("threadId", 1024),
    ("runId", 1024),
    ("parentRunId", 1024),
    ("interruptId", 1024),
    ("name of a tool", 1024),
    ("id", 16_384),
    ("subagentRunId", 16_384),
    ("id of a call", CallIds::MAX_LEN),
    ("id of a result alone", CallIds::MAX_LEN),
];

/// Values that a client might say anywhere.
pub(crate) fn values() -> Vec<Value> {
    let long = "x".repeat(1 << 20);
    vec![
        json!(""),
        json!(long),
        // Each takes six bytes in an answer.
        json!("\u{1}".repeat(1 << 17)),
        json!("\u{0}\u{202e}\u{feff}\u{1b}[31m\r\ndata: x\n\n"),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(f64::MAX),
        json!(null),
        json!(true),
        json!([]),
        json!(vec!["x"; 30_000]),
        json!({ "type": long }),
    ]
}

struct Answer {
    status: StatusCode,
    bytes: Bytes,
}

async fn answer(server: &AgUi, body: &str) -> Answer {
    let request = post(body.to_owned());
    let response = ServiceExt::<http::Request<Full<Bytes>>>::oneshot(server.clone(), request);
    let response = response.await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answer { status, bytes }
}

#[tokio::test]
async fn nothing_that_a_client_says_multiplies_or_is_a_fault_of_the_server() {
    let server = server();
    let mut broken = Vec::new();
    for (place, build) in PLACES {
        for (number, value) in values().into_iter().enumerate() {
            let body = build(value).to_string();
            let Answer { status, bytes } = answer(&server, &body).await;
            let case = format!("{place}, value {number}: {status}, {} bytes", bytes.len());
            // What a client has sent comes back once or a few times: its state, its messages. The
            // events of the model's words have no more than a KiB each.
            let most = body.len() * 6 + WORDS * 10 * 1024;
            let is_refused = status.is_client_error();
            if bytes.len() > most || !(status.is_success() || is_refused) {
                broken.push(case);
            } else if status.is_success() {
                let events = parse(std::str::from_utf8(&bytes).unwrap());
                let end = &events.last().unwrap()["type"];
                if end != "RUN_FINISHED" && end != "RUN_ERROR" {
                    broken.push(format!("{case}: {end}"));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    // It is as well as before.
    let plain = input("runId", json!("last")).to_string();
    let Answer { bytes, .. } = answer(&server, &plain).await;
    let events = parse(std::str::from_utf8(&bytes).unwrap());
    assert_eq!(events.last().unwrap()["type"], "RUN_FINISHED");
}

#[tokio::test]
async fn the_limits_of_ids_are_exact_and_named_in_the_refusal() {
    for (place, most) in IDS {
        let (_, build) = PLACES.iter().find(|(name, _)| *name == place).unwrap();
        for length in [most, most + 1] {
            let body = build(json!("x".repeat(length))).to_string();
            let Answer { bytes, .. } = answer(&server(), &body).await;
            let text = String::from_utf8_lossy(&bytes);
            let refused = text.contains(&format!("longer than {most} bytes"));
            assert_eq!(refused, length > most, "{place}: {length}: {text:.300}");
        }
    }
}

#[tokio::test]
async fn the_id_of_a_thread_that_is_read_is_bounded_as_that_of_a_run_is() {
    for (length, status) in [
        (1024, StatusCode::NOT_FOUND),
        (1025, StatusCode::UNPROCESSABLE_ENTITY),
    ] {
        let request = http::Request::get(format!("/agent?threadId={}", "x".repeat(length)));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = server().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
    }
}
