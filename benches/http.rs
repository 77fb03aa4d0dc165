//! The cost of a model call over HTTP, compared with a handwritten loop.
//!
//! Both use the chat-completions protocol with a server of the bench over loopback, and the same
//! tool. The handwritten loop uses reqwest and serialises the whole conversation from typed structs
//! at each step. Only the CPU of the client's thread is counted, including kernel time; the server
//! has its own thread and responds at once. Both threads are pinned to one CPU.

mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tower_agent::{Agent, AgentRequest, BoxError};
use tower_agent_providers::openai::OpenAi;

use self::support::Race;
use self::support::work::{self, Add};

/// Model calls per run, rounds, and the target ratio.
const RUNS: [(usize, usize, f64); 3] = [(20, 151, 1.1), (100, 61, 0.75), (300, 31, 0.65)];
const QUESTION: &str = "Count, please.";

fn main() -> Result<(), BoxError> {
    support::pin();
    let server = serve()?;
    let client = runtime()?;
    println!(
        "| model calls a run | by hand, us CPU a call | agent, us CPU a call | ratio | aim \
         | allocations a call by hand | of the agent |"
    );
    println!("|--:|--:|--:|--:|--:|--:|--:|");
    for (calls, rounds, aim) in RUNS {
        let base_url = format!("http://{server}/{calls}/v1");
        let by_hand = ByHand::new(&base_url);
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
            let messages = client.block_on(by_hand.run(QUESTION)).unwrap();
            assert_eq!(messages.len(), 2 * calls);
        });
        race.enter("agent", || {
            let response = client
                .block_on(agent.run(AgentRequest::new(QUESTION)))
                .unwrap();
            assert_eq!(response.messages().len(), 2 * calls);
        });
        let results = race.run();
        let [by_hand, agent] = &results[..] else {
            unreachable!()
        };
        println!(
            "| {calls} | {:.1} | {:.1} | {:.2} | {aim} | {} | {} |",
            by_hand.nanoseconds() / 1e3 / calls as f64,
            agent.nanoseconds() / 1e3 / calls as f64,
            agent.ratio(by_hand),
            by_hand.allocations.count / calls,
            agent.allocations.count / calls,
        );
    }
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

/// The handwritten loop.
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

impl ByHand {
    fn new(base_url: &str) -> Self {
        let parameters = schemars::schema_for!(Add).to_value();
        let function = FunctionDeclaration {
            name: "add",
            description: "Adds two numbers.",
            parameters,
        };
        Self {
            client: reqwest::Client::new(),
            url: format!("{base_url}/chat/completions"),
            tools: [ToolDeclaration {
                r#type: "function",
                function,
            }],
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
            let response = self
                .client
                .post(&self.url)
                .bearer_auth("key")
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&body)?)
                .send()
                .await?
                .error_for_status()?;
            let Completion { choices, usage } = serde_json::from_slice(&response.bytes().await?)?;
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
                let Add { a, b } = match &*call.function.name {
                    "add" => serde_json::from_str(&call.function.arguments)?,
                    name => return Err(format!("there is no tool `{name}`").into()),
                };
                let content = serde_json::to_string(&(a + b))?;
                messages.push(Message::Tool {
                    tool_call_id: call.id,
                    content,
                });
            }
        }
    }
}
