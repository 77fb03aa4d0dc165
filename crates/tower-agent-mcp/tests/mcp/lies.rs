//! A table of what a server says that is not so, one lie a row, over a stream of bytes.
//!
//! Whatever it is, the call (or the connection) ends within its limit, with the honest answer or an
//! error and never with a wrong answer; and the next call, to the same or a new connection, has the
//! right one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tower_agent_mcp::client::{Lifecycle, McpClient, McpClientBuilder};

use crate::support::{ask, names, tool};

/// The maximum size of a message, which two of the lies exceed.
const LARGEST: usize = 100_000;

/// What a server does when it is sent a message.
enum Said {
    Bytes(Vec<u8>),
    HangsUp,
}

/// How a call ends to which a lie was told.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// With the honest answer, which was sent as well.
    Honest,
    /// With an error, or an answer that says that it is one.
    Fails,
    /// With a text that shows what was sent.
    Shows(&'static str),
}
use End::{Fails, Honest, Shows};

fn line(message: Value) -> Vec<Said> {
    raw(format!("{message}\n"))
}

fn raw(text: impl Into<Vec<u8>>) -> Vec<Said> {
    vec![Said::Bytes(text.into())]
}

fn result(to: &Value, result: Value) -> Vec<Said> {
    line(json!({ "jsonrpc": "2.0", "id": to["id"], "result": result }))
}

fn honest(to: &Value) -> Vec<Said> {
    result(
        to,
        json!({ "content": [{ "type": "text", "text": "honest" }] }),
    )
}

fn notification(method: &str, params: Value) -> Vec<Said> {
    line(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

fn request(id: Value, method: &str, params: Value) -> Vec<Said> {
    line(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

fn progress(to: &Value, progress: Value) -> Vec<Said> {
    let token = &to["params"]["_meta"]["progressToken"];
    notification(
        "notifications/progress",
        json!({ "progressToken": token, "progress": progress, "total": -1 }),
    )
}

/// A client of a server that answers messages by their methods: a lie once, and the truth
/// otherwise.
fn client(
    method: &'static str,
    lie: impl Fn(&Value) -> Vec<Said> + Send + Sync + 'static,
) -> McpClientBuilder {
    let lie = Arc::new(lie);
    let told = Arc::new(AtomicUsize::new(0));
    let builder = McpClient::stream(move || {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (lie, told) = (lie.clone(), told.clone());
        tokio::spawn(async move {
            let (read, mut write) = tokio::io::split(ours);
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).unwrap();
                let is_told =
                    message["method"] == method && told.fetch_add(1, Ordering::SeqCst) == 0;
                let said = if is_told {
                    lie(&message)
                } else {
                    truth(&message)
                };
                for said in said {
                    match said {
                        Said::Bytes(bytes) if write.write_all(&bytes).await.is_ok() => {}
                        _ => return,
                    }
                }
            }
        });
        async { Ok(theirs) }
    });
    builder
        .name("liar")
        .lifecycle(Lifecycle::Initialize)
        .max_message_size(LARGEST)
        .call_timeout(Duration::from_secs(5))
        .connect_timeout(Duration::from_secs(5))
        .on_log(|_| {})
}

fn truth(message: &Value) -> Vec<Said> {
    match message["method"].as_str() {
        Some("initialize") => result(
            message,
            json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "liar", "version": "1" },
            }),
        ),
        Some("tools/list") => result(message, json!({ "tools": [tool("echo")] })),
        Some("tools/call") => honest(message),
        _ => Vec::new(),
    }
}

type Tell = fn(&Value) -> Vec<Said>;

type Lie = (&'static str, End, Tell);

/// Said before the honest answer to a call.
const NOISE: [Lie; 28] = [
    ("an answer to nobody", Honest, |_| {
        result(&json!({ "id": 9999 }), json!({ "content": [] }))
    }),
    ("an id of null", Honest, |_| {
        result(&json!({ "id": null }), json!({ "content": [] }))
    }),
    ("an id of an object", Honest, |_| {
        result(&json!({ "id": {} }), json!({ "content": [] }))
    }),
    ("an id beyond all integers", Honest, |_| {
        raw("{\"jsonrpc\":\"2.0\",\"id\":1e99,\"result\":{\"content\":[]}}\n")
    }),
    ("an error to nobody", Honest, |_| {
        line(json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -1, "message": "no" } }))
    }),
    ("half a line", Honest, |_| {
        raw("{\"jsonrpc\":\"2.0\",\"id\":\n")
    }),
    ("no UTF-8", Honest, |_| raw(b"\xff\xfe\x00{}\n".to_vec())),
    ("a lone surrogate", Honest, |_| {
        raw("{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"a\":\"\\ud800\"}}\n")
    }),
    ("a line without end", Honest, |_| {
        raw(vec![b'x'; LARGEST * 3]
            .into_iter()
            .chain(*b"\n")
            .collect::<Vec<_>>())
    }),
    ("a banner", Honest, |_| {
        raw("Server is running.\nPress ^C to stop.\n")
    }),
    ("empty lines", Honest, |_| raw("\n\r\n \n\n")),
    ("an HTTP response", Honest, |_| {
        raw("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    }),
    ("a batch", Honest, |to| {
        line(json!([{ "jsonrpc": "2.0", "id": to["id"], "result": {} }]))
    }),
    ("a number", Honest, |_| raw("7\n")),
    ("ten thousand brackets", Honest, |_| {
        raw("[".repeat(10_000) + "\n")
    }),
    ("another version of JSON-RPC", Honest, |to| {
        line(json!({ "jsonrpc": "1.0", "id": to["id"], "result": { "content": [] } }))
    }),
    ("progress of nobody", Honest, |_| {
        notification(
            "notifications/progress",
            json!({ "progressToken": "x", "progress": 1 }),
        )
    }),
    ("progress that falls", Honest, |to| {
        let mut said = progress(to, json!(9e300));
        said.extend(progress(to, json!(-1)));
        said
    }),
    ("progress in words", Honest, |to| {
        progress(to, json!("much"))
    }),
    ("a notification of nothing", Honest, |_| {
        notification("notifications/nothing", json!(null))
    }),
    ("a flood of log messages", Honest, |_| {
        let message = json!({ "level": "emergency", "data": "x".repeat(100) });
        let flood = (0..2000).flat_map(|_| notification("notifications/message", message.clone()));
        flood.collect()
    }),
    ("a log message of no level", Honest, |_| {
        notification(
            "notifications/message",
            json!({ "level": "loud", "data": 1 }),
        )
    }),
    ("changes without end", Honest, |_| {
        (0..100)
            .flat_map(|_| notification("notifications/tools/list_changed", json!({})))
            .collect()
    }),
    ("a request of nothing", Honest, |_| {
        request(json!(1), "evil/do", json!({}))
    }),
    ("a request for roots of a client without", Honest, |_| {
        request(json!(2), "roots/list", json!({}))
    }),
    ("a request for a model of a client without", Honest, |_| {
        request(
            json!(3),
            "sampling/createMessage",
            json!({ "messages": [], "maxTokens": 1 }),
        )
    }),
    ("a question without a form", Honest, |_| {
        request(json!(4), "elicitation/create", json!({ "message": 1 }))
    }),
    ("a cancellation of somebody else", Honest, |_| {
        notification("notifications/cancelled", json!({ "requestId": 4711 }))
    }),
];

/// Said in place of the honest answer to a call.
const ANSWERS: [Lie; 24] = [
    ("half a character", Shows("Hi \u{fffd}!"), |to| {
        let said = json!([{ "type": "text", "text": "Hi HALF!" }]);
        let said = json!({ "jsonrpc": "2.0", "id": to["id"], "result": { "content": said } });
        raw(said.to_string().replace("HALF", "\\ud83d") + "\n")
    }),
    ("two halves of a character", Shows("Hi \u{1f600}!"), |to| {
        let said = json!([{ "type": "text", "text": "Hi HALF!" }]);
        let said = json!({ "jsonrpc": "2.0", "id": to["id"], "result": { "content": said } });
        raw(said.to_string().replace("HALF", "\\ud83d\\ude00") + "\n")
    }),
    ("an id as text", Shows("in words"), |to| {
        let content = json!([{ "type": "text", "text": "in words" }]);
        result(
            &json!({ "id": to["id"].to_string() }),
            json!({ "content": content }),
        )
    }),
    ("a result of null", Fails, |to| result(to, json!(null))),
    ("a result of a list", Fails, |to| result(to, json!([1]))),
    ("a result of a text", Fails, |to| {
        result(to, json!("honest"))
    }),
    ("a result of another method", Fails, |to| {
        result(to, json!({ "tools": [] }))
    }),
    ("content of a text", Fails, |to| {
        result(to, json!({ "content": "honest" }))
    }),
    (
        "a block of a kind that there is not",
        Shows("hologram"),
        |to| {
            let blocks =
                json!([{ "type": "hologram", "x": 1 }, { "type": "text", "text": "beside" }]);
            result(to, json!({ "content": blocks }))
        },
    ),
    ("a block without a kind", Shows("no kind"), |to| {
        result(to, json!({ "content": [{ "text": "no kind" }] }))
    }),
    ("a block that is none", Shows("7"), |to| {
        result(to, json!({ "content": [7] }))
    }),
    ("an error in words", Fails, |to| {
        result(
            to,
            json!({ "content": [{ "type": "text", "text": "x" }], "isError": "yes" }),
        )
    }),
    ("an error without a code", Fails, |to| {
        line(json!({ "jsonrpc": "2.0", "id": to["id"], "error": { "message": "no" } }))
    }),
    ("a code in words", Fails, |to| {
        line(
            json!({ "jsonrpc": "2.0", "id": to["id"], "error": { "code": "no", "message": "no" } }),
        )
    }),
    ("an error as a text", Fails, |to| {
        line(json!({ "jsonrpc": "2.0", "id": to["id"], "error": "no" }))
    }),
    ("neither a result nor an error", Fails, |to| {
        line(json!({ "jsonrpc": "2.0", "id": to["id"] }))
    }),
    ("a task without an id", Fails, |to| {
        result(to, json!({ "resultType": "task", "task": {} }))
    }),
    ("input of a kind that there is not", Fails, |to| {
        let requests = json!({ "x": { "method": "evil/do", "params": {} } });
        result(
            to,
            json!({ "resultType": "input_required", "inputRequests": requests }),
        )
    }),
    ("an image that is none", Shows(""), |to| {
        let image = json!({ "type": "image", "data": "%%%", "mimeType": "image/png" });
        result(to, json!({ "content": [image] }))
    }),
    ("an answer that is too large", Fails, |to| {
        let text = "x".repeat(LARGEST);
        result(to, json!({ "content": [{ "type": "text", "text": text }] }))
    }),
    ("silence", Fails, |_| Vec::new()),
    ("the end", Fails, |_| vec![Said::HangsUp]),
    ("half an answer and the end", Fails, |_| {
        vec![
            Said::Bytes(b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec()),
            Said::HangsUp,
        ]
    }),
    ("a cancellation of the call and the end", Fails, |to| {
        let mut said = notification("notifications/cancelled", json!({ "requestId": to["id"] }));
        said.push(Said::HangsUp);
        said
    }),
];

async fn next_call_is_honest(lie: &str, client: &McpClient) {
    let next = ask(client, "echo", json!({})).await;
    assert_eq!(next.unwrap().value(), "honest", "after {lie}");
}

#[tokio::test(start_paused = true)]
async fn noise_changes_no_answer() {
    for (name, end, lie) in NOISE {
        assert_eq!(end, Honest);
        let builder = client("tools/call", move |to| {
            let mut said = lie(to);
            said.extend(honest(to));
            said
        });
        let client = builder.connect().await.unwrap();
        let answer = ask(&client, "echo", json!({})).await;
        assert_eq!(answer.unwrap().value(), "honest", "{name}");
        next_call_is_honest(name, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_none_fails_its_call_or_is_shown_as_it_is() {
    for (name, end, lie) in ANSWERS {
        let client = client("tools/call", lie).connect().await.unwrap();
        let answer = ask(&client, "echo", json!({})).await;
        match (end, answer) {
            (Fails, Err(error)) => assert!(!error.is_retryable(), "{name}: {error}"),
            (Shows(text), Ok(response)) => {
                let parts = format!("{:?} {}", response.parts(), response.value());
                assert!(parts.contains(text), "{name}: {parts}");
            }
            (_, answer) => panic!("{name}: {answer:?}"),
        }
        next_call_is_honest(name, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lies_is_an_error_or_has_the_good_tools() {
    let listed = |count: usize| -> Vec<Value> {
        (0..count)
            .map(|n| json!({ "name": format!("tool_{n}"), "inputSchema": {} }))
            .collect()
    };
    let many = listed(200);
    let two_hundred = client("tools/list", move |to| result(to, json!({ "tools": many })));
    assert_eq!(
        names(&two_hundred.connect().await.unwrap()).await.len(),
        200
    );

    let twice = client("tools/list", |to| {
        result(to, json!({ "tools": [tool("echo"), tool("echo")] }))
    });
    assert_eq!(names(&twice.connect().await.unwrap()).await, ["echo"]);

    let lies: [(&str, Tell); 5] = [
        ("a list of an object", |to| {
            result(to, json!({ "tools": {} }))
        }),
        ("no list", |to| result(to, json!({}))),
        ("a cursor of a number", |to| {
            result(to, json!({ "tools": [], "nextCursor": 7 }))
        }),
        ("silence", |_| Vec::new()),
        ("the end", |_| vec![Said::HangsUp]),
    ];
    for (name, lie) in lies {
        let connected = client("tools/list", lie).connect().await;
        assert!(connected.is_err(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handshake_that_lies_is_an_error() {
    let answer = |version: Value, capabilities: Value| {
        json!({
            "protocolVersion": version, "capabilities": capabilities,
            "serverInfo": { "name": "liar", "version": "1" },
        })
    };
    let lies = [
        ("a version of a number", Some(answer(json!(7), json!({})))),
        (
            "capabilities of a text",
            Some(answer(json!("2025-11-25"), json!("all"))),
        ),
        (
            "no server",
            Some(json!({ "protocolVersion": "2025-11-25", "capabilities": {} })),
        ),
        ("a result of null", Some(json!(null))),
        ("the end", None),
    ];
    for (name, lie) in lies {
        let builder = client("initialize", move |to| match &lie {
            Some(lie) => result(to, lie.clone()),
            None => vec![Said::HangsUp],
        });
        let connected = builder.connect().await;
        assert!(connected.is_err(), "{name}");
    }
    // Whatever version it says it speaks, its answers count.
    for version in ["2024-11-05", "2099-01-01"] {
        let says = client("initialize", move |to| {
            result(to, answer(json!(version), json!({ "tools": {} })))
        });
        next_call_is_honest(version, &says.connect().await.unwrap()).await;
    }
}
