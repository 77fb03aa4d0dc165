//! The protocols against servers that nobody here wrote.
#![allow(clippy::panic, clippy::unwrap_used, unreachable_pub, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use test_support::process::{Process, is_installed};
use test_support::{call, deltas, stream};
use tower_agent::message::ToolResult;
use tower_agent::model::FinishReason;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{ErrorKind, Message, ModelRequest, Part};
use tower_agent_providers::gemini::GenerateContent;
use tower_agent_providers::openai::{Chat, OpenAi, Responses};
use tower_agent_providers::{HttpClient, HttpModel, Protocol, ollama};

/// A model whose base URL ends with `path`.
fn model<P: Protocol + Default>(
    server: &Process,
    path: &str,
    key: &str,
) -> HttpModel<P, HttpClient> {
    let base_url = format!("http://{}{path}", server.address);
    HttpModel::<P, _>::builder().base_url(base_url).api_key(key).model("gpt-4o").build().unwrap()
}

fn client(server: &Process, key: &str) -> OpenAi<HttpClient> {
    model(server, "/v1", key)
}

fn asks(text: &str) -> ModelRequest {
    ModelRequest::new([Message::user(text)])
}

fn with_tools(request: ModelRequest) -> ModelRequest {
    let schema = json!({
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"],
    });
    let weather = ToolDeclaration::new("weather", "Tells the weather.").with_parameters(schema);
    let time = ToolDeclaration::new("time", "Tells the time.");
    request.with_tools(Arc::new(vec![Arc::new(weather), Arc::new(time)]))
}

/// Where the servers are installed.
fn servers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers")
}

mod aimock {
    use super::*;

    const NAME: &str = "@copilotkit/aimock";

    fn start() -> Option<Process> {
        let cli = servers().join("node_modules/@copilotkit/aimock/dist/cli.js");
        is_installed(NAME, &cli, ".ci/servers").then(|| {
            Process::start("listening on", |port| {
                let mut command = Command::new("node");
                let fixtures = servers().join("fixtures/openai.json");
                command.arg(cli).arg("--fixtures").arg(fixtures);
                // Three characters a chunk: arguments come in fragments.
                command.args(["--chunk-size", "3", "--port", &port.to_string()]);
                command
            })
        })
    }

    /// What the server does not say in a protocol, although the protocol has it.
    #[derive(Clone, Copy, PartialEq)]
    enum Omits {
        Nothing,
        Model,
        Usage,
    }

    async fn plain<P: Protocol + Default>(path: &str, omits: Omits) {
        let Some(server) = start() else { return };
        let response = call(model::<P>(&server, path, "sk-any"), asks("hello")).await.unwrap();
        assert_eq!(response.message().text(), "Hellö! How can I help you today? 🦀");
        assert_eq!(response.finish_reason(), &FinishReason::Stop);
        assert_eq!(response.usage().output_tokens > 0, omits != Omits::Usage);
        assert!(response.metadata().request_id().is_some());
        let model = response.metadata().model();
        assert_eq!(model, Some("gpt-4o").filter(|_| omits != Omits::Model));
    }

    async fn streamed<P: Protocol + Default>(path: &str, omits: Omits) {
        let Some(server) = start() else { return };
        let (response, chunks) = stream(model::<P>(&server, path, "sk-any"), asks("hello")).await;
        let response = response.unwrap();
        assert_eq!(response.message().text(), "Hellö! How can I help you today? 🦀");
        let deltas = deltas(chunks);
        assert!(deltas.len() > 5, "{deltas:?}");
        assert_eq!(response.usage().output_tokens > 0, omits != Omits::Usage);
        assert_eq!(response.attempt(), Some(0));
    }

    async fn a_tool_turn_plain_and_streamed<P: Protocol + Default>(path: &str) {
        let Some(server) = start() else { return };
        let model = model::<P>(&server, path, "sk-any");
        for is_streamed in [false, true] {
            let mut request = with_tools(asks("weather"));
            let response = if is_streamed {
                stream(model.clone(), request.clone()).await.0.unwrap()
            } else {
                call(model.clone(), request.clone()).await.unwrap()
            };
            assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
            let calls: Vec<_> = response.message().tool_calls().cloned().collect();
            let names: Vec<_> = calls.iter().map(|call| &*call.name).collect();
            assert_eq!(names, ["weather", "time"]);
            assert_eq!(calls[0].arguments, json!({ "city": "Tromsø" }));
            assert_eq!(calls[1].arguments, json!({}));
            assert_ne!(calls[0].id, calls[1].id);
            request.messages_mut().push(response.message().clone());
            for call in &calls {
                let result = ToolResult::new(call, [Part::from_text("rain")]);
                request.messages_mut().push(Message::tool(result));
            }
            let last = call(model.clone(), request).await.unwrap();
            assert_eq!(last.message().text(), "It rains.");
        }
    }

    async fn errors<P: Protocol + Default>(path: &str) {
        let Some(server) = start() else { return };
        let model = model::<P>(&server, path, "sk-any");
        for is_streamed in [false, true] {
            let ask = async |text: &str| match is_streamed {
                true => stream(model.clone(), asks(text)).await.0.unwrap_err(),
                false => call(model.clone(), asks(text)).await.unwrap_err(),
            };
            let busy = ask("busy").await;
            assert_eq!(
                (busy.kind(), busy.message()),
                (ErrorKind::RateLimited, "Too many requests")
            );
            assert_eq!(busy.retry_after(), Some(Duration::from_secs(1)));
            assert!(busy.metadata().rate_limits().count() >= 4, "{busy:?}");
            let unknown = ask("something else").await;
            assert_eq!(unknown.kind(), ErrorKind::NotFound);
            assert_eq!(unknown.message(), "No fixture matched");
        }
    }

    /// Runs every check against a protocol. `$path` ends the base URL.
    macro_rules! protocol {
        ($name:ident, $protocol:ty, $path:literal, $omits:ident) => {
            mod $name {
                #[tokio::test]
                async fn plain() {
                    super::plain::<$protocol>($path, super::Omits::$omits).await;
                }

                #[tokio::test]
                async fn streamed() {
                    super::streamed::<$protocol>($path, super::Omits::$omits).await;
                }

                #[tokio::test]
                async fn a_tool_turn_plain_and_streamed() {
                    super::a_tool_turn_plain_and_streamed::<$protocol>($path).await;
                }

                #[tokio::test]
                async fn errors() {
                    super::errors::<$protocol>($path).await;
                }
            }
        };
    }

    #[tokio::test]
    async fn encrypted_reasoning_and_items_that_are_no_words() {
        let Some(server) = start() else { return };
        let model = model::<Responses>(&server, "/v1", "sk-any").with_model("gpt-5");
        let plain = call(model.clone(), asks("think")).await.unwrap();
        let (streamed, chunks) = stream(model.clone(), asks("think")).await;
        assert!(deltas(chunks).len() > 5);
        for response in [plain, streamed.unwrap()] {
            let parts = response.message().parts();
            let [Part::Reasoning(reasoning), Part::Provider(search), Part::Text(text)] = parts
            else {
                panic!("{parts:?}");
            };
            assert_eq!((&*reasoning.text, &*text.text), ("Let me see. It is 4.", "Four."));
            let reasoning = reasoning.provider.get("openai_responses").unwrap();
            assert!(reasoning["encrypted_content"].is_string(), "{reasoning}");
            let search = search.get("openai_responses").unwrap();
            assert_eq!(search["type"], "web_search_call", "{search}");
            // All of it is accepted when it comes back.
            let said = [Message::user("think"), response.message().clone()];
            let again = ModelRequest::new(
                said.into_iter().chain([Message::user("hello")]).collect::<Vec<_>>(),
            );
            assert!(call(model.clone(), again).await.unwrap().text().starts_with("Hellö"));
        }
    }

    protocol!(chat, crate::Chat, "/v1", Nothing);
    protocol!(responses, crate::Responses, "/v1", Nothing);
    protocol!(gemini, crate::GenerateContent, "/v1beta", Model);
    protocol!(ollama, crate::ollama::Chat, "", Usage);
}

mod llm_katan {
    use super::*;

    const NAME: &str = "llm-katan";
    const KEY: &str = "katan-key";

    fn start() -> Option<Process> {
        let cli = servers().join(".venv/bin/llm-katan");
        is_installed(NAME, &cli, ".ci/servers").then(|| {
            Process::start("Uvicorn running on", |port| {
                let stats = format!("llm-katan-{port}.json");
                let stats = Path::new(env!("CARGO_TARGET_TMPDIR")).join(stats);
                let mut command = Command::new(cli);
                command.args(["--model", "echo", "--backend", "echo", "--host", "127.0.0.1"]);
                command.args(["--validate-keys", "--api-keys", &format!("openai={KEY}")]);
                command.arg("--stats-file").arg(stats).args(["--port", &port.to_string()]);
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
        assert!(streamed.message().text().contains("Grüße 🦀"), "{streamed:?}");
        assert!(streamed.usage().total() > 0);
        let deltas = deltas(chunks);
        assert!(deltas.len() > 1, "{deltas:?}");
    }

    /// It answers a streamed call that offers tools with plain JSON.
    #[tokio::test]
    async fn a_tool_call_plain_and_streamed() {
        let Some(server) = start() else { return };
        let model = client(&server, KEY);
        let plain = call(model.clone(), with_tools(asks("weather"))).await.unwrap();
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
        let refused = call(client(&server, "wrong-key"), asks("hi")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Auth, "{refused:?}");
        assert_eq!(refused.metadata().status(), Some(401));
        assert!(!format!("{refused} {refused:?}").contains("wrong-key"));
        let empty = call(client(&server, KEY), ModelRequest::default()).await.unwrap_err();
        assert_eq!(empty.kind(), ErrorKind::InvalidRequest, "{empty:?}");
        let lost = OpenAi::builder().base_url(format!("http://{}/v2", server.address));
        let lost = lost.api_key(KEY).model("m").build().unwrap();
        let lost = call(lost, asks("hi")).await.unwrap_err();
        assert_eq!((lost.kind(), lost.message()), (ErrorKind::NotFound, "Not Found"));
    }
}
