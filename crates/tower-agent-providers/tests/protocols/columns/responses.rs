//! OpenAI Responses and Open Responses.

use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Part};
use tower_agent_providers::openai::Responses;

use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};

pub struct ResponsesColumn;

/// Numbers the events, as OpenAI does.
struct Events(Vec<String>);

impl Events {
    fn push(&mut self, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.0.len().into();
        self.0.push(format!("event: {kind}\ndata: {data}\n\n"));
    }

    /// A text in its pieces: its part is added, grows, and is done.
    fn text(&mut self, at: Value, kind: &str, words: &[String], done: Value) {
        let with = |more: Value| {
            let mut all = at.clone();
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            all
        };
        for word in words {
            let delta = json!({ "delta": word, "logprobs": [], "obfuscation": "x8" });
            self.push(&format!("{kind}.delta"), with(delta));
        }
        self.push(&format!("{kind}.done"), with(done));
    }
}

fn response(answer: &Answer, status: &str) -> Value {
    let is_done = status != "in_progress";
    let reason = match answer.end {
        End::Natural => Value::Null,
        End::Length => json!({ "reason": "max_output_tokens" }),
        End::ContentFilter => json!({ "reason": "content_filter" }),
    };
    let usage = json!({
        "input_tokens": 20,
        "input_tokens_details": { "cached_tokens": 5 },
        "output_tokens": 10,
        "output_tokens_details": { "reasoning_tokens": 7 },
        "total_tokens": 30,
    });
    json!({
        "id": "resp_1",
        "object": "response",
        "created_at": 1_741_476_777,
        "status": status,
        "error": null,
        "incomplete_details": if is_done { reason } else { Value::Null },
        "instructions": null,
        "model": "test-model-2026",
        "output": if is_done { items(answer) } else { Vec::new() },
        "parallel_tool_calls": true,
        "reasoning": { "effort": "medium", "summary": "auto" },
        "store": false,
        "tools": [],
        "usage": if is_done && answer.has_usage { usage } else { Value::Null },
    })
}

fn status(answer: &Answer) -> &'static str {
    if answer.end == End::Natural {
        "completed"
    } else {
        "incomplete"
    }
}

fn items(answer: &Answer) -> Vec<Value> {
    let items = answer.bits.iter().enumerate().map(|(at, bit)| match bit {
        Bit::Text(words) => {
            let part = json!({
                "type": "output_text", "text": words.concat(), "annotations": [], "logprobs": [],
            });
            json!({
                "id": format!("msg_{at}"), "type": "message", "status": "completed",
                "role": "assistant", "content": [part],
            })
        }
        Bit::Refusal(words) => json!({
            "id": format!("msg_{at}"), "type": "message", "status": "completed",
            "role": "assistant", "content": [{ "type": "refusal", "refusal": words.concat() }],
        }),
        Bit::Reasoning { words, data } => {
            let part = json!({ "type": "summary_text", "text": words.concat() });
            let summary = if words.is_empty() {
                json!([])
            } else {
                json!([part])
            };
            json!({
                "id": format!("rs_{at}"), "type": "reasoning", "summary": summary,
                "encrypted_content": data,
            })
        }
        Bit::Call {
            id,
            name,
            arguments,
        } => json!({
            "id": format!("fc_{at}"), "type": "function_call", "status": "completed",
            "call_id": id, "name": name, "arguments": arguments.concat(),
        }),
    });
    items.collect()
}

fn emptied(mut item: Value) -> Value {
    for (field, empty) in [
        ("content", json!([])),
        ("summary", json!([])),
        ("arguments", json!("")),
        ("status", json!("in_progress")),
        ("encrypted_content", json!("")),
    ] {
        if !item[field].is_null() {
            item[field] = empty;
        }
    }
    item
}

impl Column for ResponsesColumn {
    type Protocol = Responses;

    const LINE: &'static str = "POST /v1/responses";
    const MESSAGES: &'static str = "input";
    const CALL_ID_LENGTH: usize = 64;

    fn events(answer: &Answer) -> Vec<String> {
        let mut events = Events(Vec::new());
        for kind in ["response.created", "response.in_progress"] {
            events.push(kind, json!({ "response": response(answer, "in_progress") }));
        }
        for (at, (bit, item)) in answer.bits.iter().zip(items(answer)).enumerate() {
            let added = json!({ "output_index": at, "item": emptied(item.clone()) });
            events.push("response.output_item.added", added);
            let id = &item["id"];
            let place = json!({ "item_id": id, "output_index": at, "content_index": 0 });
            let part = &item["content"][0];
            match bit {
                Bit::Text(words) => {
                    let text = json!({ "text": words.concat() });
                    events.text(place.clone(), "response.output_text", words, text);
                    let mut done = place;
                    done["part"] = part.clone();
                    events.push("response.content_part.done", done);
                }
                Bit::Refusal(words) => {
                    let text = json!({ "refusal": words.concat() });
                    events.text(place, "response.refusal", words, text);
                }
                Bit::Reasoning { words, .. } if words.is_empty() => {}
                Bit::Reasoning { words, .. } => {
                    let place = json!({ "item_id": id, "output_index": at, "summary_index": 0 });
                    let text = json!({ "text": words.concat() });
                    events.text(place, "response.reasoning_summary_text", words, text);
                }
                Bit::Call { arguments, .. } => {
                    let place = json!({ "item_id": id, "output_index": at });
                    let text = json!({ "arguments": arguments.concat() });
                    events.text(place, "response.function_call_arguments", arguments, text);
                }
            }
            events.push(
                "response.output_item.done",
                json!({ "output_index": at, "item": item }),
            );
        }
        let status = status(answer);
        let last = json!({ "response": response(answer, status) });
        events.push(&format!("response.{status}"), last);
        events.0
    }

    fn body(answer: &Answer) -> Value {
        response(answer, status(answer))
    }

    /// No numbers, no names of events, no events of parts, no ids of items, no details of usage,
    /// and a last event without the output.
    fn sparse_events(answer: &Answer) -> Vec<String> {
        let mut events = Vec::new();
        let mut push = |data: Value| events.push(format!("data: {data}\n\n"));
        for (at, (bit, mut item)) in answer.bits.iter().zip(items(answer)).enumerate() {
            item.as_object_mut().unwrap().remove("id");
            match bit {
                Bit::Text(words) => words.iter().for_each(|word| {
                    push(json!({ "type": "response.output_text.delta", "delta": word }));
                }),
                // The item at its end is all that comes.
                _ => {
                    let kind = "response.output_item.done";
                    push(json!({ "type": kind, "output_index": at, "item": item }));
                }
            }
        }
        push(json!({ "type": "response.completed", "response": {} }));
        events
    }

    fn sparse_body(answer: &Answer) -> Value {
        let mut items = items(answer);
        for item in &mut items {
            let fields = item.as_object_mut().unwrap();
            fields.remove("id");
            fields.remove("status");
        }
        json!({ "output": items })
    }

    fn unknown_event() -> String {
        let data = json!({ "type": "response.surprise.delta", "delta": "?", "output_index": 9 });
        format!("event: response.surprise.delta\ndata: {data}\n\n")
    }

    fn error_event() -> String {
        let data = json!({
            "type": "error", "code": "server_overloaded", "message": "Overloaded.", "param": null,
            "sequence_number": 3,
        });
        format!("event: error\ndata: {data}\n\n")
    }

    fn error_body() -> (u16, Value) {
        let error =
            json!({ "message": "Slow down.", "type": "tokens", "code": "rate_limit_exceeded" });
        (429, json!({ "error": error }))
    }

    fn sent_back(body: &Value) -> Vec<Sent> {
        let mut sent = Vec::new();
        for item in body["input"].as_array().unwrap() {
            let text = |field: &str| item[field].as_str().unwrap().to_owned();
            match item["type"].as_str().unwrap() {
                "message" if item["role"] == "assistant" => match item["content"].as_str() {
                    Some(text) => sent.push(Sent::Text(text.into())),
                    None => {
                        for part in item["content"].as_array().unwrap() {
                            sent.push(Sent::Text(part["text"].as_str().unwrap().into()));
                        }
                    }
                },
                "reasoning" => {
                    assert!(item["summary"].is_array(), "{item}");
                    sent.push(Sent::Reasoning(text("encrypted_content")));
                }
                "function_call" => sent.push(Sent::Call(text("call_id"))),
                "function_call_output" => sent.push(Sent::Result(text("call_id"))),
                _ => {}
            }
        }
        sent
    }

    fn unsupported_part() -> Part {
        Part::audio(MediaSource::url("https://example.com/a.wav"))
    }
}
