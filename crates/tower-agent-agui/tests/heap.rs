//! The memory that the input of a stranger takes: while it is read, and while its run lasts.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use futures::FutureExt;
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;
use tower_agent::{Agent, ModelRequest, ModelResponse};
use tower_agent_agui::{AgUi, conversations::SealKey};

/// The largest body.
const BODY: usize = 1 << 20;

fn servers() -> [(&'static str, AgUi); 2] {
    let agent = || {
        let silent = tower::service_fn(|_: ModelRequest| {
            std::future::pending::<tower_agent::Result<ModelResponse>>()
        });
        let agent = Agent::builder(silent).build().unwrap();
        // The default of values is for 4 MiB.
        AgUi::builder(agent).max_body_size(BODY).max_values(1 << 13)
    };
    let sealed = agent().stateless(SealKey::new([7; 32]));
    [("stored", agent().build()), ("sealed", sealed.build())]
}

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// Repeats an item as often as the number of values allows, and fills the body with one text.
fn body(shape: impl Fn(&str) -> String, item: impl Fn(usize) -> String, values: usize) -> Bytes {
    let count = ((1 << 13) - 50) / values;
    let items: Vec<_> = (0..count).map(item).collect();
    let items = items.join(",");
    let text = "x".repeat(BODY - items.len() - 500);
    let messages = format!(
        r#""threadId":"t","runId":"r","messages":[{{"id":"a","role":"user","content":"{text}"}}"#
    );
    let body = format!("{{{messages}{}}}", shape(&items));
    assert!(
        body.len() <= BODY && body.len() > BODY / 2,
        "{}",
        body.len()
    );
    Bytes::from(body)
}

/// Puts one text in the place of `?`.
fn text(field: &str) -> Bytes {
    let thread = THREADS.fetch_add(1, Relaxed);
    let mut fields = format!(r#""threadId":"{thread}","runId":"r",{field}"#);
    if !field.contains("messages") {
        fields.push_str(r#","messages":[{"id":"a","role":"user","content":"Hello"}]"#);
    }
    let text = "x".repeat(BODY - fields.len() - 2);
    Bytes::from(format!("{{{}}}", fields.replacen('?', &text, 1)))
}

/// One of the seven is the message as a store in memory has it, as JSON beside that of the run.
#[test]
fn a_body_takes_at_most_seven_times_its_size_in_every_shape() {
    let in_messages = |items: &str| format!(",{items}]");
    let in_content = |items: &str| format!(r#",{{"id":"b","role":"user","content":[{items}]}}]"#);
    let field = |name: &'static str, open: char, close: char| {
        move |items: &str| format!("],\"{name}\":{open}{items}{close}")
    };
    let message = |number| format!(r#"{{"id":"{number}","role":"user","content":""}}"#);
    let foreign =
        |number| format!(r#"{{"id":"{number}","role":"user","content":"","subagentRunId":"s"}}"#);
    let marked =
        |number| format!(r#"{{"id":"{number}","role":"user","content":"","metadata":{{"":0}}}}"#);
    let part = |_| r#"{"type":"text","text":""}"#.to_owned();
    let tool = |number| format!(r#"{{"name":"t{number}","description":""}}"#);
    let context = |_| r#"{"description":"","value":""}"#.to_owned();
    let answer = |number| format!(r#"{{"interruptId":"{number}","status":"cancelled"}}"#);
    let key = |number| format!(r#""{number}":0"#);
    let one_key = |_| r#"{"":0}"#.to_owned();
    let zero = |_| "0".to_owned();
    let empty = |_| "[]".to_owned();
    let bodies = [
        ("one text", body(|_| "]".to_owned(), zero, 1)),
        (
            "one text as context",
            text(r#""context":[{"description":"","value":"?"}]"#),
        ),
        (
            "one text of a tool",
            text(r#""tools":[{"name":"t","description":"?"}]"#),
        ),
        ("one text in the state", text(r#""state":{"a":"?"}"#)),
        ("one key of the state", text(r#""state":{"?":1}"#)),
        (
            "one text that is forwarded",
            text(r#""forwardedProps":"?""#),
        ),
        (
            "one image",
            text(
                r#""messages":[{"id":"a","role":"user","content":[{"type":"image","source":{"type":"data","value":"?","mimeType":"image/png"}}]}]"#,
            ),
        ),
        (
            "one account of a tool",
            text(
                r#""messages":[{"id":"a","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"?"}}]},{"id":"b","role":"tool","toolCallId":"c","content":""}]"#,
            ),
        ),
        ("messages", body(in_messages, message, 8)),
        ("messages of subagents", body(in_messages, foreign, 9)),
        ("metadata", body(in_messages, marked, 14)),
        ("parts", body(in_content, part, 7)),
        ("tools", body(field("tools", '[', ']'), tool, 7)),
        ("context", body(field("context", '[', ']'), context, 7)),
        ("answers", body(field("resume", '[', ']'), answer, 7)),
        ("keys of the state", body(field("state", '{', '}'), key, 1)),
        (
            "objects in the state",
            body(
                |items| format!("],\"state\":{{\"a\":[{items}]}}"),
                one_key,
                6,
            ),
        ),
        (
            "empty lists in the state",
            body(|items| format!("],\"state\":{{\"a\":[{items}]}}"), empty, 2),
        ),
        (
            "numbers in the state",
            body(|items| format!("],\"state\":{{\"a\":[{items}]}}"), zero, 1),
        ),
        (
            "objects that are forwarded",
            body(field("forwardedProps", '[', ']'), one_key, 6),
        ),
        (
            "objects nobody knows",
            body(field("other", '[', ']'), one_key, 6),
        ),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _in_runtime = runtime.enter();
    for (name, body) in &bodies {
        for (how, server) in servers() {
            let size = body.len();
            let mut response = None;
            let used = allocation_counter::measure(|| {
                let request = http::Request::post("/")
                    .header("content-type", "application/json")
                    .body(Full::new(Bytes::copy_from_slice(body)))
                    .unwrap();
                let answer = server.clone().oneshot(request).now_or_never().unwrap();
                let mut answer = answer.unwrap();
                assert_eq!(answer.status(), 200, "{how}: {name}");
                // Until the model has been asked.
                while answer.body_mut().frame().now_or_never().is_some() {}
                response = Some(answer);
            });
            let kept = used.bytes_current.unsigned_abs() as f64 / size as f64;
            let peak = used.bytes_max as f64 / size as f64;
            println!("{how}: {name}: {size} bytes, peak {peak:.1}, kept {kept:.1}");
            assert!(
                kept <= peak && peak <= 7.0,
                "{how}: {name}: {peak:.2} times its size"
            );
            drop(response);
        }
    }
}
