//! Answers of each known host, in files beside this one: what is read from them, what goes back in
//! the next request of a tool run, and their streams cut at every byte.
//!
//! A file has exchanges of one host, each with its origin. Most are recordings that others have
//! published under a permissive licence; where a host has none, the origin says that the exchange
//! was written after its documentation. Long recordings are shortened, and keys and the ids of
//! accounts are left out.

mod table;

use std::fs;
use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tower::service_fn;
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::model::{FinishReason, ModelService};
use tower_agent::{BoxError, Error, Message, ModelRequest, ModelResponse, Part, Role};
use tower_agent_providers::openai::{Chat, OpenAi};
use tower_agent_providers::protocol::{Call, Protocol};

use crate::server::{Reply, Server, chunked, json as reply};
use test_support::property::positions;
use test_support::{call, stream};

/// A host and its recorded answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    host: String,
    exchanges: Vec<Exchange>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exchange {
    /// The repository and the file of the recording, or the vendor's documentation.
    origin: String,
    model: String,
    answer: Answer,
    expected: Expected,
    /// The messages after those of the first request, as the host accepted them in the second.
    #[serde(default)]
    accepted: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Plain(Value),
    /// The lines of the body.
    Streamed(Vec<String>),
}

/// The contents of an answer, read by other code than the client's.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Expected {
    #[serde(default)]
    text: String,
    #[serde(default)]
    reasoning: String,
    #[serde(default)]
    calls: Vec<ExpectedCall>,
    finish: String,
    #[serde(default)]
    usage: ExpectedUsage,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct ExpectedCall {
    id: String,
    name: String,
    arguments: String,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct ExpectedUsage {
    input: u64,
    output: u64,
    cached: u64,
    reasoning: u64,
}

fn hosts() -> Vec<(String, Host)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/openai/hosts");
    let mut hosts = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let host = serde_json::from_str(&fs::read_to_string(&path).unwrap());
            hosts.push((
                name.clone(),
                host.unwrap_or_else(|error| panic!("{name}: {error}")),
            ));
        }
    }
    hosts.sort_by(|(one, _), (two, _)| one.cmp(two));
    hosts
}

fn read(response: &ModelResponse) -> Expected {
    let message = response.message();
    let reasoning = message.parts().iter().filter_map(|part| match part {
        Part::Reasoning(reasoning) => Some(&*reasoning.text),
        _ => None,
    });
    let calls = message.tool_calls().map(|call| ExpectedCall {
        id: call.id.to_string(),
        name: call.name.to_string(),
        arguments: call.arguments.as_str().to_owned(),
    });
    let finish = match response.finish_reason() {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_calls",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Other(word) => word,
        other => panic!("{other:?}"),
    };
    let usage = response.usage();
    Expected {
        text: message.text(),
        reasoning: reasoning.collect(),
        calls: calls.collect(),
        finish: finish.to_owned(),
        usage: ExpectedUsage {
            input: usage.input_tokens,
            output: usage.output_tokens,
            cached: usage.cached_input_tokens,
            reasoning: usage.reasoning_tokens,
        },
    }
}

impl Exchange {
    fn reply(&self) -> Reply {
        match &self.answer {
            Answer::Plain(body) => reply(200, body),
            Answer::Streamed(lines) => chunked([lines.join("\n")]),
        }
    }

    async fn response(&self, server: &Server) -> Result<ModelResponse, Error> {
        let model = server.builder().model(&*self.model).build().unwrap();
        let request = ModelRequest::new([Message::user("?")]);
        match &self.answer {
            Answer::Plain(_) => call(model, request).await,
            Answer::Streamed(_) => stream(model, request).await.0,
        }
    }
}

#[tokio::test]
async fn an_answer_has_all_that_the_host_sent() {
    let mut wrong = Vec::new();
    for (name, host) in hosts() {
        for exchange in &host.exchanges {
            let server = Server::start([exchange.reply()]).await;
            let found = exchange
                .response(&server)
                .await
                .map(|response| read(&response));
            let expected = &exchange.expected;
            if found.as_ref().ok() != Some(expected) {
                let origin = &exchange.origin;
                wrong.push(format!("{name}: {origin}\n{found:?}\n{expected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns messages without what two clients write differently and no server tells apart.
fn normal(messages: &[Value]) -> Vec<Value> {
    messages.iter().map(normal_message).collect()
}

fn normal_message(message: &Value) -> Value {
    let mut normal = Map::new();
    for (name, value) in message.as_object().unwrap() {
        let value = match (&**name, value) {
            ("content", Value::Array(parts)) if parts.iter().all(|part| part["type"] == "text") => {
                let texts = parts.iter().map(|part| part["text"].as_str().unwrap());
                Value::String(texts.collect())
            }
            ("tool_calls", Value::Array(calls)) => {
                let calls = calls.iter().map(|call| {
                    let function = &call["function"];
                    // Clients write them anew.
                    let arguments = function["arguments"].as_str().unwrap_or_default();
                    json!({
                        "id": call["id"],
                        "name": function["name"],
                        "arguments": serde_json::from_str::<Value>(arguments).unwrap_or_default(),
                    })
                });
                calls.collect()
            }
            (_, value) => value.clone(),
        };
        let is_empty = value.is_null() || value == "" || value == false || value == json!([]);
        // The name of a tool beside the id of its call is optional.
        if !is_empty && (name != "name" || message["role"] != "tool") {
            normal.insert(name.clone(), value);
        }
    }
    Value::Object(normal)
}

/// Adds the values in a list or an object that only the server which sent them can read.
fn opaque(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_opaque = ["signature", "encrypted", "data", "opaque"];
                match value {
                    Value::String(text) if is_opaque.iter().any(|word| name.contains(word)) => {
                        found.push(text.clone());
                    }
                    value => opaque(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| opaque(value, found)),
        _ => {}
    }
}

/// As if a company's gateway stood before each host: it is not known, and gets back all that only
/// the host behind it can read.
#[tokio::test]
async fn a_host_behind_a_gateway_gets_back_what_only_it_can_read() {
    let mut exchanges = 0;
    for (name, host) in hosts() {
        for exchange in &host.exchanges {
            let server = Server::start([exchange.reply()]).await;
            let response = exchange.response(&server).await.unwrap();
            let messages = [Message::user("?"), response.message().clone()];
            let request = ModelRequest::new(messages);
            let call = Call::new(&request)
                .with_host("gateway.example.com")
                .with_model(&*exchange.model);
            let mut body = Vec::new();
            Chat::default().encode(&call, &mut body).unwrap();
            let body = String::from_utf8(body).unwrap();
            let answers: Vec<Value> = match &exchange.answer {
                Answer::Plain(body) => vec![body.clone()],
                Answer::Streamed(lines) => {
                    let data = lines.iter().filter_map(|line| line.strip_prefix("data:"));
                    data.filter_map(|data| serde_json::from_str(data).ok())
                        .collect()
                }
            };
            let mut sealed = Vec::new();
            for answer in &answers {
                for choice in answer["choices"].as_array().into_iter().flatten() {
                    for message in [&choice["message"], &choice["delta"]] {
                        let details = [
                            "reasoning_details",
                            "thinking_blocks",
                            "extra_content",
                            "tool_calls",
                        ];
                        details
                            .iter()
                            .for_each(|name| opaque(&message[*name], &mut sealed));
                    }
                }
            }
            sealed.retain(|text| !text.is_empty());
            exchanges += usize::from(!sealed.is_empty());
            for text in sealed {
                let written = serde_json::to_string(&text).unwrap();
                assert!(
                    body.contains(&written),
                    "{name}: {}\n{written}\n{body}",
                    exchange.origin
                );
            }
        }
    }
    assert!(exchanges > 3, "{exchanges}");
}

#[tokio::test]
async fn the_next_request_is_the_one_that_the_host_accepted() {
    let mut wrong = Vec::new();
    for (name, host) in hosts() {
        for exchange in &host.exchanges {
            if exchange.accepted.is_empty() {
                continue;
            }
            let server = Server::start([exchange.reply()]).await;
            let response = exchange.response(&server).await.unwrap();
            let calls: Vec<_> = response.message().tool_calls().cloned().collect();
            let mut messages = vec![Message::user("?"), response.message().clone()];
            for sent in &exchange.accepted[1..] {
                let content = normal_message(sent)["content"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                let text = Part::from_text(content);
                messages.push(match sent["role"].as_str() {
                    Some("tool") => {
                        let is_its = |call: &&ToolCall| sent["tool_call_id"] == *call.id;
                        let call = calls
                            .iter()
                            .find(is_its)
                            .unwrap_or_else(|| panic!("{sent}"));
                        Message::new(
                            Role::Tool,
                            [Part::ToolResult(ToolResult::new(call, [text]))],
                        )
                    }
                    _ => Message::new(Role::User, [text]),
                });
            }
            let request = ModelRequest::new(messages);
            let call = Call::new(&request)
                .with_host(&host.host)
                .with_model(&*exchange.model);
            let mut body = Vec::new();
            Chat::default().encode(&call, &mut body).unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let sent = normal(&body["messages"].as_array().unwrap()[1..]);
            let accepted = normal(&exchange.accepted);
            if sent != accepted {
                let origin = &exchange.origin;
                let (sent, accepted) = (json!(sent), json!(accepted));
                wrong.push(format!("{name}: {origin}\n{sent}\n{accepted}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A stream that ends early is an error, or whole, or whole and marked as one whose usage is not
/// known.
#[tokio::test]
async fn a_stream_that_is_cut_at_any_byte_is_no_shorter_answer() {
    for (name, host) in hosts() {
        for exchange in &host.exchanges {
            let Answer::Streamed(lines) = &exchange.answer else {
                continue;
            };
            let body = Bytes::from(lines.join("\n"));
            let ends: Vec<_> = positions(0..body.len()).collect();
            let model = cut_at(body, ends.clone());
            for end in ends {
                let (result, _) = stream(model.clone(), ModelRequest::default()).await;
                let Ok(response) = result else {
                    continue;
                };
                let mut found = read(&response);
                if response.metadata().is_cut {
                    assert_eq!(found.usage, ExpectedUsage::default());
                    found.usage = exchange.expected.usage;
                }
                let origin = &exchange.origin;
                assert_eq!(found, exchange.expected, "{name}: {origin}, cut at {end}");
            }
        }
    }
}

/// A model that streams the start of a body: in each call to the next of these ends.
fn cut_at(body: Bytes, ends: Vec<usize>) -> impl ModelService + Clone {
    let calls = Arc::new(AtomicUsize::new(0));
    let client = service_fn(move |_| {
        let end = ends[calls.fetch_add(1, Ordering::Relaxed)];
        let start = Full::new(body.slice(..end));
        let response = Response::builder().header("content-type", "text/event-stream");
        ready(response.body(start).map_err(BoxError::from))
    });
    OpenAi::builder()
        .api_key("")
        .model("any")
        .build_with(client)
        .unwrap()
}
