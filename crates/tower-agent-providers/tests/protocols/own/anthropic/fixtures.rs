//! Bytes of the API, and requests of the tests.

use serde_json::{Value, json};
use tower_agent::stream::Delta;
use tower_agent::{Error, Message, ModelRequest, ModelResponse, Result};
use tower_agent_providers::anthropic::{Anthropic, Messages};
use tower_agent_providers::protocol::{Call, Protocol};
use tower_agent_providers::{HttpClient, HttpModelBuilder};

use crate::server::{Reply, Server, chunked, json as reply};
use test_support::{call, deltas, stream};

pub fn builder(server: &Server) -> HttpModelBuilder<Messages> {
    let base_url = server.base_url.trim_end_matches("/v1");
    Anthropic::builder()
        .base_url(base_url)
        .api_key("sk-ant-1")
        .model("claude-test")
}

pub fn model(server: &Server) -> Anthropic<HttpClient> {
    builder(server).build().unwrap()
}

/// A complete answer with these blocks.
pub fn answer(content: Value, stop_reason: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-test-1",
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": { "input_tokens": 10, "output_tokens": 5 },
    })
}

pub fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

pub fn tool_use(id: &str, name: &str, input: Value) -> Value {
    json!({ "type": "tool_use", "id": id, "name": name, "input": input })
}

/// The events of an answer, in the order and with the pieces that the API sends.
pub fn events_of(answer: &Value) -> Vec<Value> {
    let mut start = answer.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    let mut events = vec![json!({ "type": "message_start", "message": start })];
    for (index, block) in answer["content"].as_array().unwrap().iter().enumerate() {
        let (begin, pieces) = pieces_of(block);
        events
            .push(json!({ "type": "content_block_start", "index": index, "content_block": begin }));
        events.push(json!({ "type": "ping" }));
        for delta in pieces {
            events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        events.push(json!({ "type": "content_block_stop", "index": index }));
    }
    events.push(json!({
        "type": "message_delta",
        "delta": { "stop_reason": answer["stop_reason"], "stop_sequence": null },
        "usage": { "output_tokens": answer["usage"]["output_tokens"] },
    }));
    events.push(json!({ "type": "message_stop" }));
    events
}

fn pieces_of(block: &Value) -> (Value, Vec<Value>) {
    let mut begin = block.clone();
    let halves = |text: &str| {
        let middle = (0..=text.len() / 2)
            .rev()
            .find(|&at| text.is_char_boundary(at))
            .unwrap();
        [text[..middle].to_owned(), text[middle..].to_owned()]
    };
    let mut pieces = Vec::new();
    match block["type"].as_str().unwrap() {
        "text" => {
            begin["text"] = "".into();
            for text in halves(block["text"].as_str().unwrap()) {
                pieces.push(json!({ "type": "text_delta", "text": text }));
            }
            for citation in block["citations"].as_array().into_iter().flatten() {
                begin["citations"] = json!([]);
                pieces.push(json!({ "type": "citations_delta", "citation": citation }));
            }
        }
        "thinking" => {
            begin["thinking"] = "".into();
            begin["signature"] = "".into();
            for text in halves(block["thinking"].as_str().unwrap()) {
                pieces.push(json!({ "type": "thinking_delta", "thinking": text }));
            }
            if let Some(signature) = block["signature"].as_str() {
                pieces.push(json!({ "type": "signature_delta", "signature": signature }));
            }
        }
        "tool_use" | "server_tool_use" => {
            begin["input"] = json!({});
            pieces.push(json!({ "type": "input_json_delta", "partial_json": "" }));
            if block["input"] != json!({}) {
                for json in halves(&block["input"].to_string()) {
                    pieces.push(json!({ "type": "input_json_delta", "partial_json": json }));
                }
            }
        }
        _ => {}
    }
    (begin, pieces)
}

/// An event as it is sent, with its name.
pub fn event(event: &Value) -> String {
    format!(
        "event: {}\ndata: {event}\n\n",
        event["type"].as_str().unwrap()
    )
}

pub fn events(all: &[Value]) -> Reply {
    chunked(all.iter().map(event))
}

pub async fn plain(answer: &Value) -> Result<ModelResponse, Error> {
    let server = Server::start([reply(200, answer)]).await;
    call(model(&server), ModelRequest::new([Message::user("Hi.")])).await
}

pub async fn streamed(reply: Reply) -> (Result<ModelResponse, Error>, Vec<Delta>) {
    let server = Server::start([reply]).await;
    let request = ModelRequest::new([Message::user("Hi.")]);
    let (response, events) = stream(model(&server), request).await;
    (response, deltas(events))
}

/// Reads an answer plainly and as a stream, which must give the same.
pub async fn both(answer: &Value) -> ModelResponse {
    let whole = plain(answer).await.unwrap();
    let (response, _) = streamed(events(&events_of(answer))).await;
    let response = response.unwrap();
    assert_eq!(response.message(), whole.message());
    assert_eq!(response.finish_reason(), whole.finish_reason());
    assert_eq!(response.usage(), whole.usage());
    whole
}

/// The body that is sent for a request.
pub fn body(request: &ModelRequest) -> Value {
    try_body(&Messages::default(), request).unwrap()
}

pub fn try_body(protocol: &Messages, request: &ModelRequest) -> Result<Value> {
    let mut body = Vec::new();
    protocol.encode(&Call::new(request).with_model("claude-test"), &mut body)?;
    Ok(serde_json::from_slice(&body).unwrap())
}

pub fn messages(messages: impl IntoIterator<Item = Message>) -> Value {
    let request = ModelRequest::new(messages.into_iter().collect::<Vec<_>>());
    body(&request)["messages"].take()
}
