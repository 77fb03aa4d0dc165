//! A model that speaks chat completions, as badly as real ones do.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::service_fn;
use tower_agent::BoxError;

use crate::wire::{self, Host};
use crate::world::World;

type Body = UnsyncBoxBody<Bytes, BoxError>;

pub(crate) async fn run(world: World, host: Host) -> Result<(), BoxError> {
    let service = service_fn(move |request: Request<Incoming>| {
        let world = world.clone();
        async move {
            let response = match answer(&world, host, request).await {
                Ok(response) => response,
                Err(error) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
            };
            Ok::<_, Infallible>(response)
        }
    });
    wire::serve(service).await
}

async fn answer(
    world: &World,
    host: Host,
    request: Request<Incoming>,
) -> Result<Response<Body>, BoxError> {
    let body = request.into_body().collect().await?.to_bytes();
    let request: Value = serde_json::from_slice(&body)?;
    let messages = request["messages"].as_array().ok_or("no messages")?;
    {
        let mut seen = world.seen();
        let now = turmoil::sim_elapsed().unwrap_or_default();
        seen.calls.entry(host).or_default().push(now);
        let of_run = &messages[start_of_run(messages)..];
        let words = of_run[0]["content"].as_str().unwrap_or_default();
        let calls = seen.model_calls.entry(words.to_owned()).or_default();
        *calls = (*calls).max(calls_of_run(of_run));
    }
    // The second one is slow.
    let most = if host == "provider-2" { 3000 } else { 300 };
    sleep(world.time(Duration::from_millis(most))).await;
    if world.once_in(12) {
        world.fault("busy");
        return Ok(refusal(StatusCode::TOO_MANY_REQUESTS, "busy"));
    }
    if world.once_in(25) {
        world.fault("down");
        return Ok(refusal(StatusCode::BAD_GATEWAY, "down"));
    }
    let delta = next(messages);
    let reason = if delta.get("tool_calls").is_some() {
        "tool_calls"
    } else {
        "stop"
    };
    let usage = json!({ "prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25 });
    if request["stream"] != true {
        let choice = json!({ "index": 0, "message": delta, "finish_reason": reason });
        let answer = json!({ "id": "chat", "model": "mock", "choices": [choice], "usage": usage });
        let body = Full::new(Bytes::from(answer.to_string()));
        let body = body.map_err(|never| match never {}).boxed_unsync();
        return Ok(Response::builder()
            .header("content-type", "application/json")
            .body(body)?);
    }
    let mut chunks = vec![chunk(json!({ "role": "assistant" }), Value::Null)];
    chunks.extend(
        pieces(&delta)
            .into_iter()
            .map(|piece| chunk(piece, Value::Null)),
    );
    chunks.push(chunk(json!({}), json!(reason)));
    let mut lines: Vec<_> = chunks
        .into_iter()
        .chain([json!({ "id": "chat", "model": "mock", "choices": [], "usage": usage })])
        .map(|chunk| format!("data: {chunk}\n\n"))
        .chain(["data: [DONE]\n\n".to_owned()])
        .map(|line| Ok(Frame::data(Bytes::from(line))))
        .collect::<Vec<Result<_, BoxError>>>();
    if world.once_in(15) {
        world.fault("cut");
        let at = world.below(lines.len() as u32) as usize;
        lines.truncate(at);
        lines.push(Err("cut".into()));
    }
    let world = world.clone();
    let lines = stream::iter(lines).then(move |line| {
        let world = world.clone();
        async move {
            sleep(world.time(Duration::from_millis(50))).await;
            line
        }
    });
    Ok(Response::builder()
        .header("content-type", "text/event-stream")
        .body(StreamBody::new(lines).boxed_unsync())?)
}

/// The model: it pays, it never comes to an end, or it talks.
fn next(messages: &[Value]) -> Value {
    let of_run = &messages[start_of_run(messages)..];
    let asked = of_run[0]["content"].as_str().unwrap_or_default();
    let results: Vec<_> = of_run
        .iter()
        .filter(|message| message["role"] == "tool")
        .collect();
    let call = |name: &str, arguments: Value| {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        let id = format!("call-{}", results.len());
        let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
        json!({ "role": "assistant", "tool_calls": [call] })
    };
    let says = |text: &str| json!({ "role": "assistant", "content": text });
    match (asked.split_once(' '), results.first()) {
        (Some(("Pay", order)), None) => call("pay", json!({ "order": order })),
        (Some(("Pay", _)), Some(result)) => {
            let text = result["content"].to_string();
            says(if text.contains("paid") {
                "It is paid."
            } else {
                "It is open."
            })
        }
        (Some(("Look", _)), _) => call("look", json!({})),
        _ => says("Good morning to you as well."),
    }
}

/// Returns where the last user's message stands.
fn start_of_run(messages: &[Value]) -> usize {
    messages
        .iter()
        .rposition(|message| message["role"] == "user")
        .unwrap_or_default()
}

/// Returns the number of model calls that the run has made, this one included.
fn calls_of_run(of_run: &[Value]) -> u64 {
    let answers = of_run
        .iter()
        .filter(|message| message["role"] == "assistant");
    answers.count() as u64 + 1
}

/// Splits a message into the deltas of a stream.
fn pieces(message: &Value) -> Vec<Value> {
    match message["content"].as_str() {
        Some(text) => text
            .split_inclusive(' ')
            .map(|word| json!({ "content": word }))
            .collect(),
        None => vec![json!({ "tool_calls": message["tool_calls"] })],
    }
}

fn chunk(delta: Value, reason: Value) -> Value {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
    json!({ "id": "chat", "model": "mock", "choices": [choice] })
}

fn refusal(status: StatusCode, why: &str) -> Response<Body> {
    let error = json!({ "error": { "message": why } }).to_string();
    let body = Full::new(Bytes::from(error)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}
