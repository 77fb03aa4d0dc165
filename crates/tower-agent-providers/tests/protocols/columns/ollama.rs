//! Ollama's `/api/chat`.

use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Part, Usage};
use tower_agent_providers::ollama::Chat;

use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};

pub struct OllamaColumn;

const NO_KIND: &str = "an error is a text, without a kind";

fn line(message: Value) -> String {
    let line = json!({
        "model": "test-model-2026",
        "created_at": "2026-11-22T08:00:00.123456Z",
        "message": message,
        "done": false,
    });
    format!("{line}\n")
}

/// The fields of the last line beside a message.
fn last(answer: &Answer, message: Value) -> Value {
    let mut last = json!({
        "model": "test-model-2026",
        "created_at": "2026-11-22T08:00:01.123456Z",
        "message": message,
        "done": true,
        // Beside calls as well.
        "done_reason": if answer.end == End::Length { "length" } else { "stop" },
        "total_duration": 4_883_583_458_u64,
        "load_duration": 1_334_875,
        "prompt_eval_duration": 342_546_000,
        "eval_duration": 4_535_599_000_u64,
    });
    if answer.has_usage {
        last["prompt_eval_count"] = 20.into();
        last["eval_count"] = 10.into();
    }
    last
}

fn called((number, bit): (usize, &Bit)) -> Option<Value> {
    let Bit::Call {
        id,
        name,
        arguments,
    } = bit
    else {
        return None;
    };
    let arguments = match &*arguments.concat() {
        "" => json!({}),
        text => serde_json::from_str(text).unwrap(),
    };
    let function = json!({ "index": number, "name": name, "arguments": arguments });
    Some(json!({ "id": id, "function": function }))
}

fn without_ids(mut call: Value) -> Value {
    call.as_object_mut().unwrap().remove("id");
    call["function"].as_object_mut().unwrap().remove("index");
    call
}

impl Column for OllamaColumn {
    type Protocol = Chat;

    const LACKS: &'static [(&'static str, &'static str)] = &[
        ("a_refusal", "a refusal is text"),
        (
            "the_usage_is_kept_as_it_is_stated_if_it_was_to_be",
            "its counts stand among the other fields of a response",
        ),
        ("an_error_in_place_of_an_answer", NO_KIND),
        ("an_error_before_any_delta", NO_KIND),
        ("an_error_after_some_deltas", NO_KIND),
        (
            "reasoning_goes_back_beside_its_call",
            "reasoning is its text, without other data",
        ),
        (
            "two_reasoning_parts_stay_apart",
            "there is one text of reasoning",
        ),
        ("why_the_model_stopped", "there is no filter"),
    ];
    const LINE: &'static str = "POST /api/chat";
    const MESSAGES: &'static str = "messages";
    /// Older servers send none.
    const HAS_CALL_IDS: bool = false;

    fn events(answer: &Answer) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, bit) in answer.bits.iter().enumerate() {
            match bit {
                Bit::Text(words) | Bit::Refusal(words) => lines.extend(
                    words
                        .iter()
                        .map(|word| line(json!({ "role": "assistant", "content": word }))),
                ),
                Bit::Reasoning { words, .. } => lines.extend(words.iter().map(|word| {
                    line(json!({ "role": "assistant", "content": "", "thinking": word }))
                })),
                Bit::Call { .. } => {
                    let calls = Vec::from_iter(called((at, bit)));
                    let message =
                        json!({ "role": "assistant", "content": "", "tool_calls": calls });
                    lines.push(line(message));
                }
            }
        }
        let end = last(answer, json!({ "role": "assistant", "content": "" }));
        lines.push(format!("{end}\n"));
        lines
    }

    fn body(answer: &Answer) -> Value {
        let mut message = json!({ "role": "assistant", "content": "" });
        for bit in &answer.bits {
            match bit {
                Bit::Text(words) | Bit::Refusal(words) => {
                    message["content"] = words.concat().into()
                }
                Bit::Reasoning { words, .. } => message["thinking"] = words.concat().into(),
                Bit::Call { .. } => {}
            }
        }
        if answer.has_calls() {
            message["tool_calls"] = answer.bits.iter().enumerate().filter_map(called).collect();
        }
        last(answer, message)
    }

    fn sparse_events(answer: &Answer) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, bit) in answer.bits.iter().enumerate() {
            let messages = match bit {
                Bit::Text(words) => words
                    .iter()
                    .map(|word| json!({ "content": word }))
                    .collect(),
                _ => {
                    let calls = called((at, bit)).map(without_ids);
                    vec![json!({ "content": "", "tool_calls": Vec::from_iter(calls) })]
                }
            };
            let lines_of = messages
                .into_iter()
                .map(|word| format!("{}\n", json!({ "message": word })));
            lines.extend(lines_of);
        }
        lines.push("{\"done\":true}\n".into());
        lines
    }

    fn sparse_body(answer: &Answer) -> Value {
        let mut message = Self::body(answer)["message"].take();
        let calls = message["tool_calls"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        message["tool_calls"] = calls.into_iter().map(without_ids).collect();
        message.as_object_mut().unwrap().remove("role");
        json!({ "message": message })
    }

    fn unknown_event() -> String {
        "{\"new\":{\"field\":1}}\n".into()
    }

    fn error_event() -> String {
        "{\"error\":\"Overloaded.\"}\n".into()
    }

    fn error_body() -> (u16, Value) {
        (429, json!({ "error": "Slow down." }))
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

    /// The counts of cached and of reasoning tokens are absent.
    fn usage() -> Usage {
        Usage::new(20, 10)
    }

    fn unsupported_part() -> Part {
        Part::audio(MediaSource::base64("audio/wav", "UklG"))
    }
}
