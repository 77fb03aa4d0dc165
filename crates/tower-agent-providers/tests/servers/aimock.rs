//! aimock, a server in JavaScript that answers as its fixtures say, in each provider's protocol.
//!
//! A column is what the server says in a protocol; the checks are written once.

mod recordings;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use test_support::process::{Process, is_installed};
use test_support::{call, deltas, stream};
use tower_agent::message::ToolResult;
use tower_agent::model::{FinishReason, ReasoningEffort};
use tower_agent::stream::{Delta, Event, EventKind};
use tower_agent::{Error, ErrorKind, Message, ModelRequest, ModelResponse, Part};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::bedrock::{BedrockMessages, Converse};
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::openai::{Chat, Responses};
use tower_agent_providers::{HttpClient, HttpModel, HttpModelBuilder, Protocol, ollama};

use super::{asks, servers, with_tools};

const NAME: &str = "@copilotkit/aimock";

fn start() -> Option<Process> {
    let cli = servers().join("node_modules/@copilotkit/aimock/dist/cli.js");
    is_installed(NAME, &cli, ".ci/servers").then(|| {
        Process::start("listening on", |port| {
            let mut command = Command::new("node");
            command
                .arg(cli)
                .arg("--fixtures")
                .arg(servers().join("fixtures/aimock.json"));
            // Three characters a chunk: arguments come in fragments.
            command.args(["--chunk-size", "3", "--port", &port.to_string()]);
            command
        })
    })
}

/// The server's answers in a protocol, and the fields that it leaves out.
trait Spoken {
    type Protocol: Protocol + Default;

    /// The end of the base URL.
    const PATH: &'static str;

    /// A model that reasons.
    const MODEL: &'static str;

    const SAYS_MODEL: bool = true;
    const SAYS_USAGE: bool = true;
    const STREAMS_USAGE: bool = Self::SAYS_USAGE;

    /// Set if reasoning comes in the protocol's own field.
    const SAYS_REASONING: bool = true;

    /// Set if it keeps the calls that it is sent back.
    const KNOWS_CALLS: bool = true;

    /// Set if it keeps the ids of results.
    const KNOWS_IDS: bool = true;
}

struct Anthropic;

impl Spoken for Anthropic {
    type Protocol = Messages;
    const PATH: &'static str = "";
    const MODEL: &'static str = "claude-sonnet-4-5";
}

struct BedrockClaude;

impl Spoken for BedrockClaude {
    type Protocol = BedrockMessages;
    const PATH: &'static str = "";
    /// Without a colon, which it does not decode.
    const MODEL: &'static str = "anthropic.claude-sonnet-4-5";
    const STREAMS_USAGE: bool = false;
}

struct BedrockConverse;

impl Spoken for BedrockConverse {
    type Protocol = Converse;
    const PATH: &'static str = "";
    const MODEL: &'static str = "anthropic.claude-sonnet-4-5-20250929-v1:0";
    const SAYS_MODEL: bool = false;
}

struct ChatCompletions;

impl Spoken for ChatCompletions {
    type Protocol = Chat;
    const PATH: &'static str = "/v1";
    const MODEL: &'static str = "gpt-5";
}

struct Gemini;

impl Spoken for Gemini {
    type Protocol = GenerateContent;
    const PATH: &'static str = "/v1beta";
    const MODEL: &'static str = "gemini-2.5-pro";
    const SAYS_MODEL: bool = false;
}

struct GeminiInteractions;

impl Spoken for GeminiInteractions {
    type Protocol = Interactions;
    const PATH: &'static str = "/v1beta";
    const MODEL: &'static str = "gemini-2.5-pro";
    const KNOWS_CALLS: bool = false;
    /// It says none.
    const SAYS_REASONING: bool = false;
}

struct Ollama;

impl Spoken for Ollama {
    type Protocol = ollama::Chat;
    const PATH: &'static str = "";
    const MODEL: &'static str = "qwen3";
    const SAYS_USAGE: bool = false;
    /// It says `reasoning_content` instead of `thinking`.
    const SAYS_REASONING: bool = false;
    const KNOWS_IDS: bool = false;
}

struct OpenResponses;

impl Spoken for OpenResponses {
    type Protocol = Responses;
    const PATH: &'static str = "/v1";
    const MODEL: &'static str = "gpt-5";
}

type Model<S> = HttpModel<<S as Spoken>::Protocol, HttpClient>;

fn builder<S: Spoken>(server: &Process) -> HttpModelBuilder<S::Protocol> {
    let base_url = format!("http://{}{}", server.address, S::PATH);
    HttpModel::<S::Protocol, _>::builder()
        .base_url(base_url)
        .api_key("sk-any")
        .model(S::MODEL)
}

fn model<S: Spoken>(server: &Process) -> Model<S> {
    builder::<S>(server).build().unwrap()
}

/// A model whose requests have a header that the server obeys.
fn told<S: Spoken>(server: &Process, name: &str, value: &str) -> Model<S> {
    builder::<S>(server).header(name, value).build().unwrap()
}

/// The response to a plain call or to a streamed one, and what was streamed.
async fn ask<P: Protocol>(
    model: &HttpModel<P, HttpClient>,
    request: ModelRequest,
    is_streamed: bool,
) -> (Result<ModelResponse, Error>, Vec<Event>) {
    if is_streamed {
        stream(model.clone(), request).await
    } else {
        (call(model.clone(), request).await, Vec::new())
    }
}

/// Adds a response, and a result of each of its calls.
fn go_on(request: &mut ModelRequest, response: &ModelResponse) {
    request.messages_mut().push(response.message().clone());
    for call in response.message().tool_calls() {
        let result = ToolResult::new(call, [Part::from_text("rain")]);
        request.messages_mut().push(Message::tool(result));
    }
}

/// The requests that the server received, in its own words.
fn journal(server: &Process) -> Vec<Value> {
    let mut socket = TcpStream::connect(server.address).unwrap();
    socket
        .write_all(b"GET /__aimock/journal HTTP/1.0\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

async fn plain<S: Spoken>() {
    let Some(server) = start() else { return };
    let response = call(model::<S>(&server), asks("hello")).await.unwrap();
    assert_eq!(
        response.message().text(),
        "Hellö! How can I help you today? 🦀"
    );
    assert_eq!(response.finish_reason(), &FinishReason::Stop);
    assert_eq!(response.usage().output_tokens > 0, S::SAYS_USAGE);
    assert!(response.metadata().request_id.is_some());
    let model = Some(S::MODEL).filter(|_| S::SAYS_MODEL);
    assert_eq!(response.metadata().model.as_deref(), model);
}

async fn streamed<S: Spoken>() {
    let Some(server) = start() else { return };
    let (response, chunks) = stream(model::<S>(&server), asks("hello")).await;
    let response = response.unwrap();
    assert_eq!(
        response.message().text(),
        "Hellö! How can I help you today? 🦀"
    );
    let deltas = deltas(chunks);
    assert!(deltas.len() > 5, "{deltas:?}");
    assert_eq!(response.usage().output_tokens > 0, S::STREAMS_USAGE);
    assert_eq!(response.attempt(), Some(0));
}

async fn parallel_calls_and_their_results<S: Spoken>() {
    let Some(server) = start() else { return };
    let model = model::<S>(&server);
    for is_streamed in [false, true] {
        let mut request = with_tools(asks("weather"));
        let response = ask(&model, request.clone(), is_streamed).await.0.unwrap();
        assert_eq!(response.finish_reason(), &FinishReason::ToolCalls);
        let calls: Vec<_> = response.message().tool_calls().collect();
        let names: Vec<_> = calls.iter().map(|call| &*call.name).collect();
        assert_eq!(names, ["weather", "time"]);
        assert_eq!(calls[0].arguments, json!({ "city": "Tromsø" }));
        assert_eq!(calls[1].arguments, json!({}));
        assert_ne!(calls[0].id, calls[1].id);
        go_on(&mut request, &response);
        let last = ask(&model, request, is_streamed).await.0.unwrap();
        assert_eq!(last.message().text(), "It rains.");

        // The server accepts results of no call; it has understood whose ours are.
        let journal = journal(&server);
        let said = journal.last().unwrap()["body"]["messages"]
            .as_array()
            .unwrap();
        let called = said
            .iter()
            .filter_map(|message| message["tool_calls"].as_array())
            .flatten();
        let called: Vec<_> = called.map(|call| call["id"].as_str().unwrap()).collect();
        let results = said.iter().filter(|message| message["role"] == "tool");
        let results: Vec<_> = results
            .map(|result| result["tool_call_id"].as_str())
            .collect();
        assert_eq!(results.len(), 2, "{said:?}");
        let ids: Vec<_> = calls.iter().map(|call| &*call.id).collect();
        let expected = if S::KNOWS_CALLS { called } else { ids };
        if S::KNOWS_IDS {
            assert_eq!(
                results,
                expected.into_iter().map(Some).collect::<Vec<_>>(),
                "{said:?}"
            );
        }
    }
}

/// With the server's own checks of what it is sent.
async fn reasoning_beside_calls<S: Spoken>() {
    let Some(server) = start() else { return };
    let model = told::<S>(&server, "x-aimock-strict", "true");
    for is_streamed in [false, true] {
        let mut request = with_tools(asks("ponder"));
        // A number of tokens: the server has no rules for adaptive reasoning.
        if S::Protocol::PROVIDER == "anthropic" {
            request.settings_mut().reasoning_effort = Some(ReasoningEffort::Other("2048".into()));
        }
        let response = ask(&model, request.clone(), is_streamed).await.0.unwrap();
        let thoughts = response
            .message()
            .parts()
            .iter()
            .filter_map(|part| match part {
                Part::Reasoning(reasoning) => Some(&*reasoning.text),
                _ => None,
            });
        let expected = if S::SAYS_REASONING {
            "I should look."
        } else {
            ""
        };
        assert_eq!(thoughts.collect::<String>(), expected);
        assert_eq!(response.message().tool_calls().count(), 1);
        go_on(&mut request, &response);
        let last = ask(&model, request, is_streamed).await.0.unwrap();
        assert_eq!(last.message().text(), "Rain, I think.");
    }
}

async fn errors<S: Spoken>() {
    let Some(server) = start() else { return };
    let model = model::<S>(&server);
    let strict = told::<S>(&server, "x-aimock-strict", "true");
    for is_streamed in [false, true] {
        let busy = ask(&model, asks("busy"), is_streamed).await.0.unwrap_err();
        assert_eq!(
            (busy.kind(), busy.message()),
            (ErrorKind::RateLimited, "Too many requests")
        );
        assert_eq!(busy.retry_after(), Some(Duration::from_secs(1)));
        assert!(busy.metadata().rate_limits.len() >= 4, "{busy:?}");
        let unknown = ask(&model, asks("something else"), is_streamed)
            .await
            .0
            .unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
        assert_eq!(unknown.message(), "No fixture matched");
        let unknown = ask(&strict, asks("something else"), is_streamed)
            .await
            .0
            .unwrap_err();
        assert_eq!(unknown.metadata().status, Some(503), "{unknown:?}");
        assert!(unknown.message().contains("Strict mode"), "{unknown}");
    }
}

async fn faults_on_purpose<S: Spoken>() {
    let Some(server) = start() else { return };
    for (fault, kind, status, message) in [
        (
            "drop",
            ErrorKind::Provider,
            Some(500),
            "Chaos: request dropped",
        ),
        (
            "ratelimit",
            ErrorKind::RateLimited,
            Some(429),
            "Chaos: rate limit exceeded",
        ),
        (
            "malformed",
            ErrorKind::Protocol,
            Some(200),
            "not the expected JSON",
        ),
        ("disconnect", ErrorKind::Connection, None, ""),
    ] {
        let model = told::<S>(&server, &format!("x-aimock-chaos-{fault}"), "1");
        for is_streamed in [false, true] {
            let (response, events) = ask(&model, asks("hello"), is_streamed).await;
            let error = response.unwrap_err();
            assert_eq!(error.kind(), kind, "{fault}: {error:?}");
            assert_eq!(error.metadata().status, status, "{fault}");
            assert!(error.message().contains(message), "{fault}: {error}");
            assert!(deltas(events).is_empty(), "{fault}");
        }
    }
}

async fn a_stream_that_is_cut_off_is_an_error<S: Spoken>() {
    let Some(server) = start() else { return };
    let whole = "A long text that nobody reads to its end.";
    for after in [1, 4, 9] {
        let asked = asks(&format!("cut after {after} chunks"));
        let plain = call(model::<S>(&server), asked.clone()).await.unwrap();
        assert_eq!(plain.text(), whole);
        let (response, events) = stream(model::<S>(&server), asked).await;
        let error = response.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Connection, "{after}: {error:?}");
        assert!(error.is_retryable());
        let deltas = deltas(events);
        assert!(deltas.len() <= after, "{after}: {deltas:?}");
    }
}

async fn a_second_attempt_succeeds<S: Spoken>() {
    let Some(server) = start() else { return };
    for is_streamed in [false, true] {
        // The server counts by this.
        let name = format!("streamed: {is_streamed}");
        let model = told::<S>(&server, "x-test-id", &name);
        let models = Fallback::new(model.clone()).or(model);
        let response = if is_streamed {
            stream(models, asks("flaky")).await.0
        } else {
            call(models, asks("flaky")).await
        };
        assert_eq!(response.unwrap().text(), "At last.");
        let entries = journal(&server);
        let is_ours = |entry: &&Value| entry["headers"]["x-test-id"] == *name;
        let statuses: Vec<_> = entries.iter().filter(is_ours).collect();
        let statuses: Vec<_> = statuses
            .iter()
            .map(|entry| &entry["response"]["status"])
            .collect();
        assert_eq!(statuses, [503, 200]);
    }
}

async fn a_stream_that_breaks_begins_again<S: Spoken>() {
    let Some(server) = start() else { return };
    let model = model::<S>(&server);
    let models = Fallback::new(model.clone()).or(model).restart_streams(true);
    let (response, events) = stream(models, asks("break once")).await;
    let response = response.unwrap();
    assert_eq!(response.text(), "Once more, from the beginning.");
    // How much of the first attempt was read before the connection broke is up to the network.
    let is_discarded = |event: &Event| matches!(event.kind, EventKind::AttemptDiscarded { .. });
    let kept = events
        .iter()
        .rposition(is_discarded)
        .map_or(0, |last| last + 1);
    let texts = deltas(events[kept..].to_vec())
        .into_iter()
        .filter_map(|delta| match delta {
            Delta::Text(text) => Some(text),
            _ => None,
        });
    assert_eq!(texts.collect::<String>(), response.text());
    assert_eq!(journal(&server).len(), 2);
}

/// Runs every check against what the server says in a protocol.
macro_rules! spoken {
    ($($name:ident: $spoken:ty),+ $(,)?) => {
        $(mod $name {
            use super::*;

            spoken!($spoken;
                plain,
                streamed,
                parallel_calls_and_their_results,
                reasoning_beside_calls,
                errors,
                faults_on_purpose,
                a_stream_that_is_cut_off_is_an_error,
                a_second_attempt_succeeds,
                a_stream_that_breaks_begins_again,
            );
        })+
    };
    ($spoken:ty; $($check:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $check() {
                super::$check::<$spoken>().await;
            }
        )+
    };
}

spoken! {
    anthropic: Anthropic,
    bedrock_claude: BedrockClaude,
    bedrock_converse: BedrockConverse,
    chat: ChatCompletions,
    gemini: Gemini,
    gemini_interactions: GeminiInteractions,
    ollama_chat: Ollama,
    responses: OpenResponses,
}

#[tokio::test]
async fn encrypted_reasoning_and_items_that_are_no_words() {
    let Some(server) = start() else { return };
    let model = model::<OpenResponses>(&server);
    for is_streamed in [false, true] {
        let (response, chunks) = ask(&model, asks("think"), is_streamed).await;
        assert_eq!(deltas(chunks).len() > 5, is_streamed);
        let response = response.unwrap();
        let parts = response.message().parts();
        let [
            Part::Reasoning(reasoning),
            Part::Provider(search),
            Part::Text(text),
        ] = parts
        else {
            panic!("{parts:?}");
        };
        assert_eq!(
            (&*reasoning.text, &*text.text),
            ("Let me see. It is 4.", "Four.")
        );
        let reasoning = reasoning.provider.get("openai_responses").unwrap();
        assert!(reasoning["encrypted_content"].is_string(), "{reasoning}");
        let search = search.get("openai_responses").unwrap();
        assert_eq!(search["type"], "web_search_call", "{search}");
        // All of it is accepted when it comes back.
        let said = [
            Message::user("think"),
            response.message().clone(),
            Message::user("hello"),
        ];
        let again = call(model.clone(), ModelRequest::new(said)).await.unwrap();
        assert!(again.text().starts_with("Hellö"));
    }
}

/// Thinking without its signature is what the server refuses when it is strict.
#[tokio::test]
async fn thinking_that_lost_its_signature_is_refused() {
    let Some(server) = start() else { return };
    let model = told::<Anthropic>(&server, "x-aimock-strict", "true");
    let mut request = with_tools(asks("ponder"));
    request.settings_mut().reasoning_effort = Some(ReasoningEffort::Other("2048".into()));
    let mut response = call(model.clone(), request.clone()).await.unwrap();
    response
        .message_mut()
        .parts_mut()
        .retain(|part| !matches!(part, Part::Reasoning(_)));
    go_on(&mut request, &response);
    let error = call(model, request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert!(
        error
            .message()
            .contains("must begin with a `thinking` block"),
        "{error}"
    );
}
