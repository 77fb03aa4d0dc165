//! The chat protocol of Cohere, which is written outside the crate: an example of a protocol of
//! one's own.

#[path = "../../../examples/cohere/protocol.rs"]
#[allow(dead_code, reason = "the example uses the rest")]
mod protocol;

use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Part, Usage};

use self::protocol::Chat;
use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};

pub struct CohereColumn;

fn event(data: &Value) -> String {
    format!(
        "event: {}\ndata: {data}\n\n",
        data["type"].as_str().unwrap()
    )
}

fn reason(answer: &Answer) -> &'static str {
    match answer.end {
        End::Natural if answer.has_calls() => "TOOL_CALL",
        End::Natural => "COMPLETE",
        End::Length => "MAX_TOKENS",
        End::ContentFilter => "ERROR_TOXIC",
    }
}

fn usage() -> Value {
    json!({
        "billed_units": { "input_tokens": 4, "output_tokens": 10 },
        "tokens": { "input_tokens": 20, "output_tokens": 10 },
    })
}

fn events(answer: &Answer) -> Vec<String> {
    let mut events = Vec::new();
    let mut push = |kind: &str, index: usize, message: Value| {
        let delta = json!({ "message": message });
        events.push(event(
            &json!({ "type": kind, "index": index, "delta": delta }),
        ));
    };
    let mut calls = 0;
    for bit in &answer.bits {
        match bit {
            // Text before calls is a plan.
            Bit::Text(words) if answer.has_calls() => words.iter().for_each(|word| {
                push("tool-plan-delta", 0, json!({ "tool_plan": word }));
            }),
            Bit::Text(words) => {
                let content = json!({ "type": "text", "text": "" });
                push("content-start", 0, json!({ "content": content }));
                words.iter().for_each(|word| {
                    push("content-delta", 0, json!({ "content": { "text": word } }));
                });
                push("content-end", 0, Value::Null);
            }
            Bit::Call {
                id,
                name,
                arguments,
            } => {
                let function = json!({ "name": name, "arguments": "" });
                let call = json!({ "id": id, "type": "function", "function": function });
                push("tool-call-start", calls, json!({ "tool_calls": call }));
                arguments.iter().for_each(|more| {
                    let call = json!({ "function": { "arguments": more } });
                    push("tool-call-delta", calls, json!({ "tool_calls": call }));
                });
                push("tool-call-end", calls, Value::Null);
                calls += 1;
            }
            Bit::Reasoning { .. } | Bit::Refusal(_) => panic!("{bit:?}"),
        }
    }
    events
}

fn message(answer: &Answer) -> Value {
    let mut message = json!({ "role": "assistant" });
    let mut calls = Vec::new();
    for bit in &answer.bits {
        match bit {
            Bit::Text(words) if answer.has_calls() => message["tool_plan"] = words.concat().into(),
            Bit::Text(words) => {
                message["content"] = json!([{ "type": "text", "text": words.concat() }]);
            }
            Bit::Call {
                id,
                name,
                arguments,
            } => {
                let function = json!({ "name": name, "arguments": arguments.concat() });
                calls.push(json!({ "id": id, "type": "function", "function": function }));
            }
            Bit::Reasoning { .. } | Bit::Refusal(_) => panic!("{bit:?}"),
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

impl Column for CohereColumn {
    type Protocol = Chat;

    const LACKS: &'static [(&'static str, &'static str)] = &[
        ("parts_keep_their_order", "the example leaves reasoning out"),
        (
            "reasoning_goes_back_beside_its_call",
            "the example leaves reasoning out",
        ),
        (
            "two_reasoning_parts_stay_apart",
            "the example leaves reasoning out",
        ),
        ("a_refusal", "a refusal is text"),
        ("why_the_model_stopped", "a filter has a word of its own"),
        (
            "an_error_before_any_delta",
            "an error inside a stream has no kind",
        ),
        (
            "an_error_after_some_deltas",
            "an error inside a stream has no kind",
        ),
        (
            "an_error_in_place_of_an_answer",
            "an error has no kind but its status",
        ),
        (
            "text_streams_in_its_deltas",
            "a response does not name its model",
        ),
    ];
    const LINE: &'static str = "POST /v1/chat";
    const MESSAGES: &'static str = "messages";

    fn events(answer: &Answer) -> Vec<String> {
        let delta = json!({ "message": { "role": "assistant", "content": [], "tool_plan": "" } });
        let start = json!({ "type": "message-start", "id": "r1", "delta": delta });
        let mut end = json!({ "finish_reason": reason(answer) });
        if answer.has_usage {
            end["usage"] = usage();
        }
        let end = json!({ "type": "message-end", "id": "r1", "delta": end });
        let all = [event(&start)].into_iter().chain(events(answer));
        all.chain([event(&end)]).collect()
    }

    fn body(answer: &Answer) -> Value {
        let (message, reason) = (message(answer), reason(answer));
        let mut body = json!({ "id": "r1", "message": message, "finish_reason": reason });
        if answer.has_usage {
            body["usage"] = usage();
        }
        body
    }

    fn sparse_events(answer: &Answer) -> Vec<String> {
        let end = event(&json!({ "type": "message-end" }));
        events(answer).into_iter().chain([end]).collect()
    }

    fn sparse_body(answer: &Answer) -> Value {
        json!({ "message": message(answer) })
    }

    fn unknown_event() -> String {
        event(
            &json!({ "type": "citation-start", "index": 0, "delta": { "message": {
            "citations": { "start": 0, "end": 1, "sources": [] } } } }),
        )
    }

    fn error_event() -> String {
        let delta = json!({ "finish_reason": "ERROR", "error": "Overloaded." });
        event(&json!({ "type": "message-end", "id": "r1", "delta": delta }))
    }

    fn error_body() -> (u16, Value) {
        (429, json!({ "id": "e1", "message": "Slow down." }))
    }

    fn sent_back(body: &Value) -> Vec<Sent> {
        let mut sent = Vec::new();
        for message in body["messages"].as_array().unwrap() {
            let text = |field: &str| message[field].as_str().map(|text| Sent::Text(text.into()));
            match message["role"].as_str().unwrap() {
                "assistant" => {
                    sent.extend(text("content").or(text("tool_plan")));
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

    fn usage() -> Usage {
        Usage::new(20, 10)
    }

    fn unsupported_part() -> Part {
        Part::image(MediaSource::url("https://example.com/a.png"))
    }
}
