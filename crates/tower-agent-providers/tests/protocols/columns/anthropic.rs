//! Anthropic Messages.

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Part};
use tower_agent_providers::anthropic::Messages;

use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};

pub struct AnthropicColumn;

fn event(data: Value) -> String {
    format!(
        "event: {}\ndata: {data}\n\n",
        data["type"].as_str().unwrap()
    )
}

fn stop_reason(answer: &Answer) -> &'static str {
    match answer.end {
        End::Natural if answer.has_calls() => "tool_use",
        End::Natural => "end_turn",
        End::Length => "max_tokens",
        End::ContentFilter => "refusal",
    }
}

fn usage(output_tokens: u64) -> Value {
    json!({
        "input_tokens": 15,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "cache_creation": { "ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0 },
        "output_tokens": output_tokens,
        "output_tokens_details": { "thinking_tokens": if output_tokens > 1 { 7 } else { 0 } },
        "service_tier": "standard",
        "inference_geo": "not_available",
    })
}

/// The block of a bit, and the pieces in which it is streamed.
fn block(bit: &Bit) -> (Value, Vec<Value>) {
    match bit {
        Bit::Text(words) | Bit::Refusal(words) => {
            let pieces = words
                .iter()
                .map(|text| json!({ "type": "text_delta", "text": text }));
            (
                json!({ "type": "text", "text": words.concat() }),
                pieces.collect(),
            )
        }
        Bit::Reasoning { words, data } => {
            let block =
                json!({ "type": "thinking", "thinking": words.concat(), "signature": data });
            let pieces = words.iter().map(|text| {
                json!({ "type": "thinking_delta", "thinking": text, "estimated_tokens": null })
            });
            let signature = json!({ "type": "signature_delta", "signature": data });
            (block, pieces.chain([signature]).collect())
        }
        Bit::Call {
            id,
            name,
            arguments,
        } => {
            let input: Value = match &*arguments.concat() {
                "" => json!({}),
                text => serde_json::from_str(text).unwrap(),
            };
            let block = json!({ "type": "tool_use", "id": id, "name": name, "input": input });
            let piece = |json: &str| json!({ "type": "input_json_delta", "partial_json": json });
            let pieces = [piece("")]
                .into_iter()
                .chain(arguments.iter().map(|json| piece(json)));
            (block, pieces.collect())
        }
    }
}

fn emptied(mut block: Value) -> Value {
    for (field, empty) in [
        ("text", json!("")),
        ("thinking", json!("")),
        ("signature", json!("")),
        ("input", json!({})),
    ] {
        if !block[field].is_null() {
            block[field] = empty;
        }
        if block[field].is_null() {
            block.as_object_mut().unwrap().remove(field);
        }
    }
    block
}

impl Column for AnthropicColumn {
    type Protocol = Messages;

    const LACKS: &'static [(&'static str, &'static str)] = &[(
        "a_refusal",
        "a refusal is not text: it is the reason why the whole answer ended",
    )];

    // The base URL of this provider has no version.
    const LINE: &'static str = "POST /v1/messages";
    const MESSAGES: &'static str = "messages";
    const CALL_ID_LENGTH: usize = 64;
    const SPARE_EVENTS: usize = 1;

    fn events(answer: &Answer) -> Vec<String> {
        let mut message = Self::body(answer);
        message["content"] = json!([]);
        message["stop_reason"] = Value::Null;
        if answer.has_usage {
            message["usage"] = usage(1);
        }
        let mut events = vec![event(
            json!({ "type": "message_start", "message": message }),
        )];
        for (index, bit) in answer.bits.iter().enumerate() {
            let (block, pieces) = block(bit);
            let start = json!({
                "type": "content_block_start", "index": index, "content_block": emptied(block),
            });
            events.push(event(start));
            if index == 0 {
                events.push(event(json!({ "type": "ping" })));
            }
            for delta in pieces {
                let delta =
                    json!({ "type": "content_block_delta", "index": index, "delta": delta });
                events.push(event(delta));
            }
            events.push(event(
                json!({ "type": "content_block_stop", "index": index }),
            ));
        }
        let delta = json!({
            "stop_reason": stop_reason(answer), "stop_sequence": null, "stop_details": null,
            "container": null,
        });
        let mut end = json!({ "type": "message_delta", "delta": delta });
        if answer.has_usage {
            end["usage"] = usage(10);
        }
        events.push(event(end));
        events.push(event(json!({ "type": "message_stop" })));
        events
    }

    fn body(answer: &Answer) -> Value {
        let content: Vec<_> = answer.bits.iter().map(|bit| block(bit).0).collect();
        let mut body = json!({
            "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
            "type": "message",
            "role": "assistant",
            "model": "test-model-2026",
            "content": content,
            "stop_reason": stop_reason(answer),
            "stop_sequence": null,
            "stop_details": null,
            "container": null,
        });
        if answer.has_usage {
            body["usage"] = usage(10);
        }
        body
    }

    /// No usage, no `ping`, no ends of blocks, no last event; a call comes in one piece.
    fn sparse_events(answer: &Answer) -> Vec<String> {
        let mut events = vec![event(json!({ "type": "message_start", "message": {} }))];
        for bit in &answer.bits {
            let (block, pieces) = block(bit);
            let is_call = matches!(bit, Bit::Call { .. });
            let first = if is_call { block } else { emptied(block) };
            events.push(event(
                json!({ "type": "content_block_start", "content_block": first }),
            ));
            for delta in pieces.into_iter().filter(|_| !is_call) {
                events.push(event(
                    json!({ "type": "content_block_delta", "delta": delta }),
                ));
            }
        }
        let delta = json!({ "stop_reason": stop_reason(answer) });
        events.push(event(json!({ "type": "message_delta", "delta": delta })));
        events
    }

    fn sparse_body(answer: &Answer) -> Value {
        let content: Vec<_> = answer.bits.iter().map(|bit| block(bit).0).collect();
        json!({ "content": content })
    }

    fn unknown_event() -> String {
        event(json!({ "type": "message_progress", "index": 0, "delta": { "type": "progress" } }))
    }

    fn error_event() -> String {
        let error =
            json!({ "type": "overloaded_error", "message": "Overloaded.", "details": null });
        event(json!({ "type": "error", "error": error, "request_id": "req_1" }))
    }

    fn error_body() -> (u16, Value) {
        let error = json!({ "type": "rate_limit_error", "message": "Slow down." });
        (
            429,
            json!({ "type": "error", "error": error, "request_id": "req_1" }),
        )
    }

    fn key_header() -> (HeaderName, HeaderValue) {
        (
            HeaderName::from_static("x-api-key"),
            HeaderValue::from_static("k"),
        )
    }

    fn sent_back(body: &Value) -> Vec<Sent> {
        let messages = body["messages"].as_array().unwrap();
        let blocks = messages.iter().flat_map(|message| {
            let is_user = message["role"] == "user";
            message["content"]
                .as_array()
                .unwrap()
                .iter()
                .map(move |block| (is_user, block))
        });
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let sent = blocks.filter_map(|(is_user, block)| match block["type"].as_str().unwrap() {
            "text" if is_user => None,
            "text" => Some(Sent::Text(word(&block["text"]))),
            "thinking" => Some(Sent::Reasoning(word(&block["signature"]))),
            "tool_use" => Some(Sent::Call(word(&block["id"]))),
            "tool_result" => Some(Sent::Result(word(&block["tool_use_id"]))),
            other => panic!("{other}"),
        });
        sent.collect()
    }

    fn unsupported_part() -> Part {
        Part::audio(MediaSource::base64("audio/wav", "UklGRg=="))
    }
}
