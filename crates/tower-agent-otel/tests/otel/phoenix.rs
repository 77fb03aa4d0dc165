//! Phoenix, a server in Python that lists traces and sessions by the OpenInference conventions.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::{Value, json};
use test_support::process::{Process, is_installed};
use tower_agent::{Agent, AgentRequest, Checkpoint, Resolution, Tool, Usage};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_otel::OpenTelemetry;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world;

fn start() -> Option<Process> {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/phoenix");
    let phoenix = servers.join(".venv/bin/phoenix");
    is_installed("arize-phoenix", &phoenix, ".ci/servers").then(|| {
        Process::start("Uvicorn running on", |port| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("phoenix");
            // A database of an earlier run would have its traces.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let mut command = Command::new(phoenix);
            command.arg("serve");
            command.env("PHOENIX_HOST", "127.0.0.1");
            command.env("PHOENIX_PORT", port.to_string());
            command.env("PHOENIX_GRPC_PORT", "0");
            command.env("PHOENIX_WORKING_DIR", &folder);
            // It asks nobody for anything, and tells nobody that it runs.
            command.env("PHOENIX_TELEMETRY_ENABLED", "false");
            command.env("PHOENIX_ALLOW_EXTERNAL_RESOURCES", "false");
            command.env("PYTHONUNBUFFERED", "1");
            command
        })
    })
}

/// Asks what the server's page asks.
fn ask(server: &Process, query: &str) -> Value {
    let body = json!({ "query": query }).to_string();
    let mut socket = TcpStream::connect(server.address).unwrap();
    write!(
        socket,
        "POST /graphql HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    let answer: Value = serde_json::from_str(body).unwrap();
    assert_eq!(answer["errors"], Value::Null, "{query}");
    answer["data"]["projects"]["edges"][0]["node"].clone()
}

/// Returns the nodes of a list of the project, in the order in which they began.
fn list(server: &Process, name: &str, fields: &str) -> Vec<Value> {
    let query = format!(
        "{{ projects {{ edges {{ node {{ {name} {{ edges {{ node {{ {fields} }} }} }} }} }} }} }}"
    );
    let project = ask(server, &query);
    let kind = name.split('(').next().unwrap();
    let edges = project[kind]["edges"].as_array().unwrap();
    let mut nodes: Vec<_> = edges.iter().map(|edge| edge["node"].clone()).collect();
    nodes.sort_by_key(|node| node["startTime"].as_str().map(str::to_owned));
    nodes
}

/// Waits until the server has stored as many spans: it does so after it has received them.
fn await_spans(server: &Process, count: u64) {
    let stored = "{ projects { edges { node { recordCount } } } }";
    for _ in 0..1_000 {
        if ask(server, stored)["recordCount"].as_u64() == Some(count) {
            return;
        }
        std::thread::yield_now();
    }
    let spans = list(server, "spans(first: 100)", "name startTime");
    panic!("not {count} spans: {spans:#?}");
}

fn clerk(model: ScriptedModel) -> Agent {
    let pay = Tool::function("pay", "Pays.", |amount: Value| json!({ "paid": amount }));
    Agent::builder(model)
        .name("clerk")
        .description("Pays bills.")
        .tool(pay)
        .on_tool(Approval::of_tools(["pay"]))
        .global_callbacks(OpenTelemetry::new().record_content())
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_backend_lists_what_was_asked_and_answered_and_keeps_sessions_whole() {
    let Some(server) = start() else { return };
    let spans = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("http://{}/v1/traces", server.address));
    let tracers = SdkTracerProvider::builder()
        .with_batch_exporter(spans.build().unwrap())
        .build();
    let _guard = tracing::subscriber::set_default(world::spans(&tracers));

    let asks = clerk(ScriptedModel::new([
        Turn::tool("pay", json!(7)).usage(Usage::new(100, 5))
    ]));
    let paused = asks.run("Pay 7.").await.unwrap();
    let approve = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
    // Stored and read again, as by another process.
    let saved = serde_json::to_string(&paused.checkpoint()).unwrap();
    let saved: Checkpoint = serde_json::from_str(&saved).unwrap();
    let pays = clerk(ScriptedModel::new([
        Turn::from_text("Paid 7.").usage(Usage::new(200, 6))
    ]));
    let request = AgentRequest::resume(saved).with_resolutions([approve]);
    assert_eq!(pays.run(request).await.unwrap().text(), "Paid 7.");
    let greets = clerk(ScriptedModel::new([
        Turn::from_text("Good day.").usage(Usage::new(10, 1))
    ]));
    greets.run("Hello.").await.unwrap();
    tracers.force_flush().unwrap();
    await_spans(&server, 3 + 2 + 3);

    let fields = "name parentId startTime spanKind input { value } output { value } attributes \
                  cumulativeTokenCountPrompt";
    let spans = list(&server, "spans(first: 100)", fields);
    let roots: Vec<_> = spans
        .iter()
        .filter(|span| span["parentId"].is_null())
        .collect();
    let [first, second, third] = roots[..] else {
        panic!("{roots:#?}")
    };
    for (root, input, output, tokens) in [
        (first, "Pay 7.", "tool_call", 100.0),
        (second, "Pay 7.", "Paid 7.", 200.0),
        (third, "Hello.", "Good day.", 10.0),
    ] {
        assert_eq!(root["name"], "invoke_agent clerk");
        assert_eq!(root["spanKind"], "agent");
        assert_eq!(root["input"]["value"], input);
        let listed = root["output"]["value"].as_str().unwrap();
        assert!(listed.contains(output), "{listed}");
        // Each token once, although the agent's span has them as well.
        assert_eq!(root["cumulativeTokenCountPrompt"], tokens);
    }

    let attributes = |span: &Value| -> Value {
        serde_json::from_str(span["attributes"].as_str().unwrap()).unwrap()
    };
    assert_eq!(
        attributes(first)["gen_ai"]["agent"]["description"],
        "Pays bills."
    );
    let mut payments = Vec::new();
    for span in spans
        .iter()
        .filter(|span| span["name"] == "execute_tool pay")
    {
        let is_waiting = attributes(span)["tower_agent"]["waiting"] == true;
        payments.push((
            is_waiting,
            span["output"]["value"].as_str().map(str::to_owned),
        ));
    }
    let paid = r#"{"paid":7}"#.to_owned();
    assert_eq!(payments, [(true, None), (false, Some(paid))]);

    let fields = "startTime sessionId numTraces firstInput { value } lastOutput { value } \
                  tokenUsage { prompt completion }";
    let sessions = list(&server, "sessions(first: 100)", fields);
    let [payment, greeting] = &sessions[..] else {
        panic!("{sessions:#?}")
    };
    assert_eq!(payment["numTraces"], 2);
    assert_eq!(payment["firstInput"]["value"], "Pay 7.");
    assert_eq!(payment["lastOutput"]["value"], "Paid 7.");
    assert_eq!(
        payment["tokenUsage"],
        json!({ "prompt": 300.0, "completion": 11.0 })
    );
    assert_eq!(greeting["numTraces"], 1);
    assert_eq!(greeting["lastOutput"]["value"], "Good day.");
}
