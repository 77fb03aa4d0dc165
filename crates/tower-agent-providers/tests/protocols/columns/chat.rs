//! Chat completions.

use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Part};
use tower_agent_providers::openai::Chat;

use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};

pub struct ChatColumn;

fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

fn chunk(delta: Value, finish_reason: Value) -> String {
    event(&json!({
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_741_476_777,
        "model": "test-model-2026",
        "system_fingerprint": "fp_1",
        "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason }],
        "usage": null,
    }))
}

fn reason(answer: &Answer) -> &'static str {
    match answer.end {
        End::Natural if answer.has_calls() => "tool_calls",
        End::Natural => "stop",
        End::Length => "length",
        End::ContentFilter => "content_filter",
    }
}

fn usage() -> Value {
    json!({
        "prompt_tokens": 20,
        "completion_tokens": 10,
        "total_tokens": 30,
        "prompt_tokens_details": { "cached_tokens": 5, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 7, "audio_tokens": 0 },
    })
}

fn deltas(answer: &Answer) -> Vec<Value> {
    let mut deltas = Vec::new();
    let mut calls = 0;
    for bit in &answer.bits {
        match bit {
            Bit::Text(words) => deltas.extend(words.iter().map(|word| json!({ "content": word }))),
            Bit::Refusal(words) => {
                deltas.extend(words.iter().map(|word| json!({ "refusal": word })))
            }
            Bit::Reasoning { words, .. } => {
                deltas.extend(
                    words
                        .iter()
                        .map(|word| json!({ "reasoning_content": word })),
                );
            }
            Bit::Call {
                id,
                name,
                arguments,
            } => {
                let function = json!({ "name": name, "arguments": "" });
                let call =
                    json!({ "index": calls, "id": id, "type": "function", "function": function });
                deltas.push(json!({ "tool_calls": [call] }));
                for more in arguments {
                    let call = json!({ "index": calls, "function": { "arguments": more } });
                    deltas.push(json!({ "tool_calls": [call] }));
                }
                calls += 1;
            }
        }
    }
    deltas
}

fn message(answer: &Answer) -> Value {
    let mut message = json!({ "role": "assistant", "content": null, "refusal": null });
    let mut calls = Vec::new();
    for bit in &answer.bits {
        match bit {
            Bit::Text(words) => message["content"] = words.concat().into(),
            Bit::Refusal(words) => message["refusal"] = words.concat().into(),
            Bit::Reasoning { words, .. } => message["reasoning_content"] = words.concat().into(),
            Bit::Call {
                id,
                name,
                arguments,
            } => {
                let function = json!({ "name": name, "arguments": arguments.concat() });
                calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

impl Column for ChatColumn {
    type Protocol = Chat;

    const LACKS: &'static [(&'static str, &'static str)] = &[
        (
            "reasoning_goes_back_beside_its_call",
            "reasoning is its text, without other data",
        ),
        (
            "two_reasoning_parts_stay_apart",
            "there is one text of reasoning",
        ),
    ];
    const LINE: &'static str = "POST /v1/chat/completions";
    const MESSAGES: &'static str = "messages";
    const CALL_ID_LENGTH: usize = 40;
    /// The usage, and `[DONE]`.
    const SPARE_EVENTS: usize = 2;

    fn events(answer: &Answer) -> Vec<String> {
        let mut events = vec![chunk(
            json!({ "role": "assistant", "content": "" }),
            Value::Null,
        )];
        events.extend(
            deltas(answer)
                .into_iter()
                .map(|delta| chunk(delta, Value::Null)),
        );
        events.push(chunk(json!({}), reason(answer).into()));
        if answer.has_usage {
            events.push(event(&json!({ "choices": [], "usage": usage() })));
        } else {
            events.push(": nothing\n\n".into());
        }
        events.push("data: [DONE]\n\n".into());
        events
    }

    fn body(answer: &Answer) -> Value {
        let (message, reason) = (message(answer), reason(answer));
        let mut body = json!({
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_741_476_777,
            "model": "test-model-2026",
            "choices": [{ "index": 0, "message": message, "logprobs": null, "finish_reason": reason }],
        });
        if answer.has_usage {
            body["usage"] = usage();
        }
        body
    }

    fn sparse_events(answer: &Answer) -> Vec<String> {
        let chunk = |delta: Value| event(&json!({ "choices": [{ "delta": delta }] }));
        let mut events: Vec<_> = deltas(answer).into_iter().map(chunk).collect();
        events.push("data: [DONE]\n\n".into());
        events
    }

    fn sparse_body(answer: &Answer) -> Value {
        let mut message = message(answer);
        message
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        json!({ "choices": [{ "message": message }] })
    }

    fn unknown_event() -> String {
        "event: surprise\ndata: {\"choices\":[],\"new\":{\"field\":1}}\n\n".into()
    }

    fn error_event() -> String {
        let error = json!({ "message": "Overloaded.", "type": "overloaded_error", "code": null });
        event(&json!({ "error": error }))
    }

    fn error_body() -> (u16, Value) {
        let error = json!({ "message": "Slow down.", "type": "rate_limit_error", "param": null });
        (429, json!({ "error": error }))
    }

    fn sent_back(body: &Value) -> Vec<Sent> {
        let mut sent = Vec::new();
        for message in body["messages"].as_array().unwrap() {
            match message["role"].as_str().unwrap() {
                "assistant" => {
                    let text = message["content"].as_str().filter(|text| !text.is_empty());
                    sent.extend(text.map(|text| Sent::Text(text.into())));
                    for call in message["tool_calls"].as_array().into_iter().flatten() {
                        sent.push(Sent::Call(call["id"].as_str().unwrap().into()));
                    }
                }
                "tool" => {
                    sent.push(Sent::Result(
                        message["tool_call_id"].as_str().unwrap().into(),
                    ));
                }
                _ => {}
            }
        }
        sent
    }

    fn unsupported_part() -> Part {
        Part::audio(MediaSource::url("https://example.com/a.wav"))
    }
}
