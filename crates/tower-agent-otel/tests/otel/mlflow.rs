//! MLflow, a server in Python that reads the GenAI conventions.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::trace::SdkTracerProvider;
use serde_json::{Value, json};
use test_support::process::{Process, is_installed};
use tower_agent::callback::on_model_error;
use tower_agent::model::ModelTarget;
use tower_agent::{Agent, Error, ErrorKind, ModelRequest, Recovery, Tool, Usage};
use tower_agent_otel::OpenTelemetry;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world;

fn start() -> Option<Process> {
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers");
    let uvicorn = servers.join(".venv/bin/uvicorn");
    is_installed("mlflow-skinny", &uvicorn, ".ci/servers").then(|| {
        Process::start("Uvicorn running on", |port| {
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mlflow");
            // A database of an earlier run would have its traces.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let database = folder.join("traces.db");
            let mut command = Command::new(uvicorn);
            command.args(["mlflow.server.fastapi_app:app", "--host", "127.0.0.1"]);
            command.args(["--port", &port.to_string()]);
            command.env(
                "_MLFLOW_SERVER_FILE_STORE",
                format!("sqlite:///{}", database.display()),
            );
            command.env("_MLFLOW_SERVER_ARTIFACT_ROOT", folder.join("artifacts"));
            // It asks nobody for prices, and tells nobody that it runs.
            command
                .env("MLFLOW_MODEL_CATALOG_URI", "")
                .env("MLFLOW_DISABLE_TELEMETRY", "true");
            command
        })
    })
}

/// Calls the server's API.
fn api(server: &Process, method: &str, path: &str, body: &str) -> Value {
    let mut socket = TcpStream::connect(server.address).unwrap();
    let length = body.len();
    write!(
        socket,
        "{method} /api/3.0/mlflow/{path} HTTP/1.0\r\nhost: {}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}",
        server.address
    )
    .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    serde_json::from_str(body).unwrap()
}

/// A trace as the server keeps it.
struct Trace {
    info: Value,
    spans: Vec<Value>,
}

impl Trace {
    /// Returns the traces in the order in which they began.
    fn all(server: &Process) -> Vec<Self> {
        let experiment = json!({ "type": "MLFLOW_EXPERIMENT",
            "mlflow_experiment": { "experiment_id": "0" } });
        let search = json!({ "locations": [experiment], "order_by": ["timestamp_ms ASC"] });
        let found = api(server, "POST", "traces/search", &search.to_string());
        let load = |info: &Value| {
            let id = info["trace_id"].as_str().unwrap();
            let path = format!("traces/get?trace_id={id}&allow_partial=true");
            let trace = api(server, "GET", &path, "");
            let spans = trace["trace"]["spans"].as_array().unwrap().clone();
            Self {
                info: info.clone(),
                spans,
            }
        };
        found["traces"]
            .as_array()
            .into_iter()
            .flatten()
            .map(load)
            .collect()
    }

    /// Returns the spans of a name, in the order in which they began.
    fn named(&self, name: &str) -> Vec<&Value> {
        let mut found: Vec<_> = self
            .spans
            .iter()
            .filter(|span| span["name"] == name)
            .collect();
        found.sort_by_key(|span| span["start_time_unix_nano"].as_u64());
        found
    }
}

/// Returns an attribute, or what the server has made of several.
fn made(span: &Value, key: &str) -> Value {
    let attributes = span["attributes"].as_array().unwrap();
    let found = attributes.iter().find(|attribute| attribute["key"] == key);
    found.map_or(Value::Null, |attribute| plain(&attribute["value"]))
}

/// Returns a value of OTLP's JSON as plain JSON.
fn plain(value: &Value) -> Value {
    let Some((kind, value)) = value.as_object().and_then(|object| object.iter().next()) else {
        return Value::Null;
    };
    let values = || value["values"].as_array().into_iter().flatten();
    match &**kind {
        "array_value" => values().map(plain).collect(),
        "kvlist_value" => values()
            .map(|entry| {
                (
                    entry["key"].as_str().unwrap().to_owned(),
                    plain(&entry["value"]),
                )
            })
            .collect(),
        "int_value" => value.as_str().map_or(value.clone(), |number| {
            json!(number.parse::<i64>().unwrap())
        }),
        _ => value.clone(),
    }
}

/// A model that tells its name.
fn named(model: ScriptedModel) -> impl tower_agent::model::ModelService {
    use tower::ServiceBuilder;
    ServiceBuilder::new()
        .map_request(|request: ModelRequest| {
            if let Some(target) = request.extensions().get::<ModelTarget>() {
                target.set("gemini", Some("gemini-2.5-pro"));
            }
            request
        })
        .service(model)
}

fn boss(telemetry: OpenTelemetry) -> Agent {
    let mut usage = Usage::new(100, 5);
    (usage.cached_input_tokens, usage.cache_write_tokens) = (40, 7);
    let worker = ScriptedModel::new([Turn::from_text("Oslo").usage(Usage::new(10, 1))]);
    let worker = Agent::builder(worker).name("worker").build().unwrap();
    let model = ScriptedModel::new([
        Turn::error(Error::new(ErrorKind::Overloaded, "busy")),
        Turn::tool("add", json!({ "a": 1, "b": 2 }))
            .and_tool("worker", json!({ "request": "Where?" }))
            .usage(usage),
        Turn::from_text("3, in Oslo").usage(Usage::new(1000, 20)),
        Turn::error(Error::new(ErrorKind::Auth, "who?")),
    ]);
    let add = Tool::function(
        "add",
        "Adds.",
        |numbers: Value| json!({ "sum": numbers["a"].as_i64().unwrap() + numbers["b"].as_i64().unwrap() }),
    );
    Agent::builder(named(model))
        .name("boss")
        .instructions("Be exact.")
        .tool(add)
        .tool(worker.into_tool("Works."))
        .on_model(on_model_error(|_, error| match error.kind() {
            ErrorKind::Overloaded => Recovery::Retry,
            _ => Recovery::Propagate,
        }))
        .global_callbacks(telemetry)
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_server_that_knows_the_conventions_understands_what_it_receives() {
    let Some(server) = start() else { return };
    // The first call makes the database, which takes longer than an exporter waits.
    assert_eq!(Trace::all(&server).len(), 0);
    let spans = SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("http://{}/v1/traces", server.address))
        .with_headers([("x-mlflow-experiment-id".to_owned(), "0".to_owned())].into());
    let tracers = SdkTracerProvider::builder()
        .with_batch_exporter(spans.build().unwrap())
        .build();
    let _guard = tracing::subscriber::set_default(world::spans(&tracers));
    let boss = boss(OpenTelemetry::new().record_content());
    boss.run("Who?").await.unwrap();
    boss.run("Who?").await.unwrap_err();
    tracers.force_flush().unwrap();

    let traces = Trace::all(&server);
    let [good, bad] = &traces[..] else {
        panic!("{} traces", traces.len())
    };
    assert_eq!(good.info["state"], "OK");
    // Its sum over the trace: each token once, whichever agent spent it and however often it tried.
    let sum = good.info["trace_metadata"]["mlflow.trace.tokenUsage"]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(sum).unwrap(),
        json!({ "input_tokens": 1110, "output_tokens": 26, "total_tokens": 1136,
            "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7 })
    );
    assert_eq!(good.spans.len(), 7);
    for (name, kind) in [
        ("invoke_agent boss", "AGENT"),
        ("chat gemini-2.5-pro", "CHAT_MODEL"),
        ("execute_tool add", "TOOL"),
        ("execute_tool worker", "TOOL"),
        ("invoke_agent worker", "AGENT"),
        ("chat", "CHAT_MODEL"),
    ] {
        let found = good.named(name);
        assert!(!found.is_empty(), "no {name}");
        for span in found {
            assert_eq!(made(span, "mlflow.spanType"), kind, "{name}");
            assert_ne!(span["status"]["code"], "STATUS_CODE_ERROR", "{name}");
        }
    }
    let tool = good.named("execute_tool worker");
    let inner = good.named("invoke_agent worker");
    assert_eq!(inner[0]["parent_span_id"], tool[0]["span_id"]);

    let [first, second] = good.named("chat gemini-2.5-pro")[..] else {
        panic!("two calls")
    };
    assert_eq!(made(first, "mlflow.llm.model"), "gemini-2.5-pro");
    assert_eq!(made(first, "mlflow.llm.provider"), "gcp.gemini");
    let mut events = first["events"].as_array().unwrap().iter();
    assert!(events.any(|event| event["name"] == "retrying call"));
    assert_eq!(made(first, "mlflow.chat.tools")[1]["name"], "worker");
    let question = json!({ "role": "user", "parts": [{ "type": "text", "content": "Who?" }] });
    assert_eq!(made(first, "mlflow.spanInputs"), json!([question]));
    let call = &made(first, "mlflow.spanOutputs")[0]["parts"][0];
    assert_eq!(
        (&call["name"], &call["arguments"]["b"]),
        (&json!("add"), &json!(2))
    );
    let usage = made(second, "mlflow.chat.tokenUsage");
    assert_eq!(
        (&usage["input_tokens"], &usage["total_tokens"]),
        (&json!(1000), &json!(1020))
    );
    let result = json!({ "type": "tool_call_response", "id": "call_2", "response": "Oslo" });
    assert_eq!(
        made(second, "mlflow.spanInputs")[3]["parts"],
        json!([result])
    );
    let add = good.named("execute_tool add")[0];
    assert_eq!(made(add, "mlflow.spanInputs"), json!({ "a": 1, "b": 2 }));
    assert_eq!(made(add, "mlflow.spanOutputs"), json!({ "sum": 3 }));

    assert_eq!(bad.info["state"], "ERROR");
    for span in &bad.spans {
        assert_eq!(
            span["status"],
            json!({ "code": "STATUS_CODE_ERROR", "message": "auth" })
        );
        assert_eq!(made(span, "error.type"), "auth");
    }
    let failed = &bad.named("chat gemini-2.5-pro")[0]["events"][0];
    assert_eq!(failed["name"], "gen_ai.client.operation.exception");
}
