//! llm-katan, a server in Python that echoes what it is asked.

use std::path::Path;
use std::process::Command;

use test_support::process::{Process, is_installed};
use test_support::{call, deltas, stream};
use tower_agent::model::FinishReason;
use tower_agent::{ErrorKind, ModelRequest};
use tower_agent_providers::HttpClient;
use tower_agent_providers::openai::OpenAi;

use super::{asks, servers, with_tools};

fn client(server: &Process, key: &str) -> OpenAi<HttpClient> {
    let base_url = format!("http://{}/v1", server.address);
    OpenAi::builder()
        .base_url(base_url)
        .api_key(key)
        .model("gpt-4o")
        .build()
        .unwrap()
}

const NAME: &str = "llm-katan";
const KEY: &str = "katan-key";

fn start() -> Option<Process> {
    let cli = servers().join(".venv/bin/llm-katan");
    is_installed(NAME, &cli, ".ci/servers").then(|| {
        Process::start("Uvicorn running on", |port| {
            let stats = format!("llm-katan-{port}.json");
            let stats = Path::new(env!("CARGO_TARGET_TMPDIR")).join(stats);
            let mut command = Command::new(cli);
            command.args([
                "--model",
                "echo",
                "--backend",
                "echo",
                "--host",
                "127.0.0.1",
            ]);
            command.args(["--validate-keys", "--api-keys", &format!("openai={KEY}")]);
            command
                .arg("--stats-file")
                .arg(stats)
                .args(["--port", &port.to_string()]);
            command
        })
    })
}

#[tokio::test]
async fn plain_and_streamed() {
    let Some(server) = start() else { return };
    let model = client(&server, KEY);
    let plain = call(model.clone(), asks("Grüße 🦀")).await.unwrap();
    assert!(plain.message().text().contains("Grüße 🦀"), "{plain:?}");
    assert!(plain.usage().total() > 0);
    let (streamed, chunks) = stream(model, asks("Grüße 🦀")).await;
    let streamed = streamed.unwrap();
    assert!(
        streamed.message().text().contains("Grüße 🦀"),
        "{streamed:?}"
    );
    assert!(streamed.usage().total() > 0);
    let deltas = deltas(chunks);
    assert!(deltas.len() > 1, "{deltas:?}");
}

/// It answers a streamed call that offers tools with plain JSON.
#[tokio::test]
async fn a_tool_call_plain_and_streamed() {
    let Some(server) = start() else { return };
    let model = client(&server, KEY);
    let plain = call(model.clone(), with_tools(asks("weather")))
        .await
        .unwrap();
    let (streamed, chunks) = stream(model, with_tools(asks("weather"))).await;
    for response in [plain, streamed.unwrap()] {
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
        let calls: Vec<_> = response.message().tool_calls().collect();
        assert_eq!(calls.len(), 1);
        assert_eq!(&*calls[0].name, "weather");
        assert!(calls[0].arguments.value()["city"].is_string(), "{calls:?}");
    }
    let deltas = deltas(chunks);
    assert_eq!(deltas.len(), 2, "{deltas:?}");
}

#[tokio::test]
async fn errors() {
    let Some(server) = start() else { return };
    let refused = call(client(&server, "wrong-key"), asks("hi"))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Auth, "{refused:?}");
    assert_eq!(refused.metadata().status, Some(401));
    assert!(!format!("{refused} {refused:?}").contains("wrong-key"));
    let empty = call(client(&server, KEY), ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(empty.kind(), ErrorKind::InvalidRequest, "{empty:?}");
    let lost = OpenAi::builder().base_url(format!("http://{}/v2", server.address));
    let lost = lost.api_key(KEY).model("m").build().unwrap();
    let lost = call(lost, asks("hi")).await.unwrap_err();
    assert_eq!(
        (lost.kind(), lost.message()),
        (ErrorKind::NotFound, "Not Found")
    );
}
