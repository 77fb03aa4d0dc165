//! The cost of a model call over HTTP, compared with two handwritten loops.
//!
//! All use the chat-completions protocol with a server of the bench over loopback, and the same
//! tool. The handwritten loops use reqwest. One serialises the whole conversation from typed
//! structs at each step. The other keeps the bytes that it has sent, and appends what is new: the
//! model's message as it came, and the result of the tool. Runs at once share the client's thread,
//! and each has a connection. Only the CPU of that thread is counted, including kernel time; the
//! server has its own thread and responds at once. Both threads may run anywhere in the first
//! table, and are pinned to one CPU in the second.

mod support;

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower_agent::{Agent, AgentRequest, BoxError};
use tower_agent_providers::openai::OpenAi;

use self::support::work::{self, Add};
use self::support::{Measured, Race};

/// A row of a table.
struct Row {
    /// Model calls per run.
    calls: usize,
    /// Runs at once.
    connections: usize,
    rounds: usize,
}

const ROWS: [Row; 8] = [
    Row::new(20, 1, 151),
    Row::new(100, 1, 61),
    Row::new(300, 1, 31),
    Row::new(20, 8, 61),
    Row::new(100, 8, 21),
    Row::new(300, 8, 7),
    Row::new(20, 64, 21),
    Row::new(100, 64, 7),
];
const QUESTION: &str = "Count, please.";

impl Row {
    const fn new(calls: usize, connections: usize, rounds: usize) -> Self {
        Self {
            calls,
            connections,
            rounds,
        }
    }
}

fn main() -> Result<(), BoxError> {
    println!("Not pinned:\n");
    table()?;
    println!("\nPinned to one CPU:\n");
    support::pin();
    table()
}

fn table() -> Result<(), BoxError> {
    let server = serve()?;
    let client = runtime()?;
    println!(
        "| model calls a run | connections | by hand, us CPU a call | bytes kept | agent | agent / by hand \
         | agent / bytes kept | allocations a call by hand | bytes kept | agent |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for row in ROWS {
        race(server, &client, &row)?;
    }
    Ok(())
}

fn race(server: SocketAddr, client: &Runtime, row: &Row) -> Result<(), BoxError> {
    let &Row {
        calls,
        connections,
        rounds,
    } = row;
    let base_url = format!("http://{server}/{calls}/v1");
    let by_hand = ByHand::new(&base_url);
    let by_hand_in_bytes = ByHandInBytes::new(&base_url)?;
    let model = OpenAi::builder()
        .base_url(&base_url)
        .model("m")
        .api_key("key")
        .build()?;
    let agent = Agent::builder(model)
        .tool(work::add())
        .max_iterations(u32::MAX)
        .build()?;

    let mut race = Race::new(cpu, rounds);
    race.enter("by hand", || {
        let runs = (0..connections).map(|_| by_hand.run(QUESTION));
        for messages in client.block_on(join_all(runs)) {
            assert_eq!(messages.unwrap().len(), 2 * calls);
        }
    });
    race.enter("by hand, bytes kept", || {
        let runs = (0..connections).map(|_| by_hand_in_bytes.run(QUESTION));
        for messages in client.block_on(join_all(runs)) {
            assert_eq!(messages.unwrap(), 2 * calls);
        }
    });
    race.enter("agent", || {
        let runs = (0..connections).map(|_| agent.run(AgentRequest::new(QUESTION)));
        for response in client.block_on(join_all(runs)) {
            assert_eq!(response.unwrap().messages().len(), 2 * calls);
        }
    });
    let results = race.run();
    let [by_hand, by_hand_in_bytes, agent] = &results[..] else {
        unreachable!()
    };
    let all_calls = calls * connections;
    let microseconds = |measured: &Measured| measured.nanoseconds() / 1e3 / all_calls as f64;
    println!(
        "| {calls} | {connections} | {:.1} | {:.1} | {:.1} | {:.2} | {:.2} | {} | {} | {} |",
        microseconds(by_hand),
        microseconds(by_hand_in_bytes),
        microseconds(agent),
        agent.ratio(by_hand),
        agent.ratio(by_hand_in_bytes),
        by_hand.allocations.count / all_calls,
        by_hand_in_bytes.allocations.count / all_calls,
        agent.allocations.count / all_calls,
    );
    Ok(())
}

/// The CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// A server that calls the tool in all but the last response; the path says how many. Its responses
/// have the fields and lengths of OpenAI's.
fn serve() -> Result<SocketAddr, BoxError> {
    let runtime = runtime()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = stream.set_nodelay(true);
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service_fn(answer)));
            }
        });
    });
    Ok(address)
}

async fn answer(
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let calls = request
        .uri()
        .path()
        .split('/')
        .nth(1)
        .and_then(|calls| calls.parse().ok());
    let calls: usize = calls.unwrap_or_default();
    let body = request
        .into_body()
        .collect()
        .await
        .map(|body| body.to_bytes())
        .unwrap_or_default();
    let sums = String::from_utf8_lossy(&body)
        .matches(r#""role":"tool""#)
        .count();
    let mut message = json!({ "role": "assistant", "refusal": null, "annotations": [] });
    let reason = if sums + 1 < calls {
        let function = json!({ "name": "add", "arguments": format!(r#"{{"a":{sums},"b":1}}"#) });
        let id = format!("call_{sums:024}");
        message["content"] = Value::Null;
        message["tool_calls"] = json!([{ "id": id, "type": "function", "function": function }]);
        "tool_calls"
    } else {
        message["content"] = json!("done");
        "stop"
    };
    let answer = json!({
        "id": "chatcmpl-000000000000000000000000000",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "choices": [
            { "index": 0, "message": message, "logprobs": null, "finish_reason": reason },
        ],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 10,
            "total_tokens": 110,
            "prompt_tokens_details": { "cached_tokens": 0, "audio_tokens": 0 },
            "completion_tokens_details": { "reasoning_tokens": 0, "audio_tokens": 0 },
        },
        "service_tier": "default",
        "system_fingerprint": "fp_0000000000",
    });
    let response = http::Response::new(Full::from(answer.to_string()));
    let (mut head, body) = response.into_parts();
    head.headers.insert(
        "content-type",
        http::HeaderValue::from_static("application/json"),
    );
    Ok(http::Response::from_parts(head, body))
}

/// The handwritten loop that serialises the whole conversation at each step.
struct ByHand {
    client: reqwest::Client,
    url: String,
    tools: [ToolDeclaration; 1],
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: &'a [Message],
    tools: &'a [ToolDeclaration],
}

#[derive(Serialize)]
struct ToolDeclaration {
    r#type: &'static str,
    function: FunctionDeclaration,
}

#[derive(Serialize)]
struct FunctionDeclaration {
    name: &'static str,
    description: &'static str,
    parameters: Value,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum Message {
    User {
        content: String,
    },
    Assistant {
        content: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    Tool {
        tool_call_id: String,
        content: String,
    },
}

#[derive(Clone, Serialize, Deserialize)]
struct ToolCall {
    id: String,
    r#type: String,
    function: Function,
}

#[derive(Clone, Serialize, Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    usage: Usage,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: u64,
}

fn add_declaration() -> ToolDeclaration {
    let parameters = schemars::schema_for!(Add).to_value();
    let function = FunctionDeclaration {
        name: "add",
        description: "Adds two numbers.",
        parameters,
    };
    ToolDeclaration {
        r#type: "function",
        function,
    }
}

/// Sends a request, as both loops by hand do.
async fn post(client: &reqwest::Client, url: &str, body: Vec<u8>) -> Result<Bytes, BoxError> {
    let request = client.post(url).bearer_auth("key");
    let request = request.header("content-type", "application/json");
    let response = request.body(body).send().await?.error_for_status()?;
    Ok(response.bytes().await?)
}

/// Calls the tool, as both loops by hand do.
fn call_tool(name: &str, arguments: &str) -> Result<String, BoxError> {
    let Add { a, b } = match name {
        "add" => serde_json::from_str(arguments)?,
        name => return Err(format!("there is no tool `{name}`").into()),
    };
    Ok(serde_json::to_string(&(a + b))?)
}

impl ByHand {
    fn new(base_url: &str) -> Self {
        Self {
            client: reqwest::Client::new(),
            url: format!("{base_url}/chat/completions"),
            tools: [add_declaration()],
        }
    }

    async fn run(&self, question: &str) -> Result<Vec<Message>, BoxError> {
        let mut messages = vec![Message::User {
            content: question.to_owned(),
        }];
        let mut tokens = 0;
        loop {
            let body = Body {
                model: "m",
                messages: &messages,
                tools: &self.tools,
            };
            let response = post(&self.client, &self.url, serde_json::to_vec(&body)?).await?;
            let Completion { choices, usage } = serde_json::from_slice(&response)?;
            tokens += usage.total_tokens;
            let message = choices.into_iter().next().ok_or("no choice")?.message;
            let calls = match &message {
                Message::Assistant { tool_calls, .. } => tool_calls.clone(),
                Message::User { .. } | Message::Tool { .. } => Vec::new(),
            };
            messages.push(message);
            if calls.is_empty() {
                assert!(tokens > 0);
                return Ok(messages);
            }
            for call in calls {
                let content = call_tool(&call.function.name, &call.function.arguments)?;
                messages.push(Message::Tool {
                    tool_call_id: call.id,
                    content,
                });
            }
        }
    }
}

/// The handwritten loop that keeps the bytes that it has sent.
struct ByHandInBytes {
    client: reqwest::Client,
    url: String,
    /// The body up to its first message.
    head: Vec<u8>,
}

/// The end of a body.
const END: &[u8] = b"]}";

#[derive(Deserialize)]
struct RawCompletion<'a> {
    #[serde(borrow)]
    choices: Vec<RawChoice<'a>>,
    usage: Usage,
}

#[derive(Deserialize)]
struct RawChoice<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
}

#[derive(Deserialize)]
struct RawMessage<'a> {
    #[serde(borrow, default)]
    tool_calls: Vec<RawCall<'a>>,
}

#[derive(Deserialize)]
struct RawCall<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    function: RawFunction<'a>,
}

#[derive(Deserialize)]
struct RawFunction<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Cow<'a, str>,
}

#[derive(Serialize)]
struct ToolMessage<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    content: &'a str,
}

impl ByHandInBytes {
    fn new(base_url: &str) -> Result<Self, BoxError> {
        // The messages come last, so that they can be appended.
        let mut head = br#"{"model":"m","tools":"#.to_vec();
        serde_json::to_writer(&mut head, &[add_declaration()])?;
        head.extend_from_slice(br#","messages":["#);
        Ok(Self {
            client: reqwest::Client::new(),
            url: format!("{base_url}/chat/completions"),
            head,
        })
    }

    /// Returns the number of messages of the conversation.
    async fn run(&self, question: &str) -> Result<usize, BoxError> {
        let mut body = self.head.clone();
        let content = question.to_owned();
        serde_json::to_writer(&mut body, &Message::User { content })?;
        let mut messages = 1;
        let mut tokens = 0;
        loop {
            let mut whole = Vec::with_capacity(body.len() + END.len());
            whole.extend_from_slice(&body);
            whole.extend_from_slice(END);
            let response = post(&self.client, &self.url, whole).await?;
            let RawCompletion { choices, usage } = serde_json::from_slice(&response)?;
            tokens += usage.total_tokens;
            let message = choices.into_iter().next().ok_or("no choice")?.message;
            body.push(b',');
            body.extend_from_slice(message.get().as_bytes());
            messages += 1;
            let RawMessage { tool_calls } = serde_json::from_str(message.get())?;
            if tool_calls.is_empty() {
                assert!(tokens > 0);
                return Ok(messages);
            }
            for call in tool_calls {
                let content = call_tool(&call.function.name, &call.function.arguments)?;
                let result = ToolMessage {
                    role: "tool",
                    tool_call_id: &call.id,
                    content: &content,
                };
                body.push(b',');
                serde_json::to_writer(&mut body, &result)?;
                messages += 1;
            }
        }
    }
}
