//! Gemini's Interactions API.

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tower_agent::message::Part;
use tower_agent_providers::gemini::Interactions;

use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};

pub struct InteractionsColumn;

/// The stand-in for the signature of a call that no Gemini model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// An event as Google writes it.
fn event(kind: &str, mut data: Value) -> String {
    data["event_type"] = kind.into();
    format!("event: {kind}\ndata: {data}\n\n")
}

fn usage() -> Value {
    json!({
        "total_tokens": 30,
        "total_input_tokens": 20,
        "input_tokens_by_modality": [{ "modality": "text", "tokens": 20 }],
        "total_cached_tokens": 5,
        "total_output_tokens": 3,
        "total_tool_use_tokens": 0,
        "total_thought_tokens": 7,
    })
}

/// The interaction, without its steps.
fn interaction(answer: &Answer) -> Value {
    let status = match answer.end {
        End::Natural if answer.has_calls() => "requires_action",
        End::Natural => "completed",
        _ => "incomplete",
    };
    let mut interaction = json!({
        "id": "",
        "object": "interaction",
        "created": "2026-05-12T18:44:51Z",
        "updated": "2026-05-12T18:44:51Z",
        "model": "test-model-2026",
        "service_tier": "standard",
        "status": status,
    });
    if answer.has_usage {
        interaction["usage"] = usage();
    }
    interaction
}

fn step(bit: &Bit) -> Value {
    match bit {
        Bit::Text(words) | Bit::Refusal(words) => json!({
            "type": "model_output", "content": [{ "type": "text", "text": words.concat() }],
        }),
        Bit::Reasoning { words, data } => {
            let mut step = json!({ "type": "thought", "signature": data });
            if !words.is_empty() {
                step["summary"] = json!([{ "type": "text", "text": words.concat() }]);
            }
            step
        }
        Bit::Call {
            id,
            name,
            arguments,
        } => {
            let arguments = match &*arguments.concat() {
                "" => json!({}),
                text => serde_json::from_str(text).unwrap(),
            };
            json!({ "type": "function_call", "id": id, "name": name, "arguments": arguments })
        }
    }
}

/// The pieces of a step, and how it begins.
fn pieces(bit: &Bit) -> (Value, Vec<Value>) {
    match bit {
        Bit::Text(words) | Bit::Refusal(words) => {
            let pieces = words
                .iter()
                .map(|word| json!({ "text": word, "type": "text" }));
            (json!({ "type": "model_output" }), pieces.collect())
        }
        Bit::Reasoning { words, data } => {
            let pieces = words.iter().map(|word| {
                let content = json!({ "text": word, "type": "text" });
                json!({ "content": content, "type": "thought_summary" })
            });
            let signature = json!({ "signature": data, "type": "thought_signature" });
            (
                json!({ "type": "thought" }),
                pieces.chain([signature]).collect(),
            )
        }
        Bit::Call {
            id,
            name,
            arguments,
        } => {
            let pieces = arguments
                .iter()
                .map(|piece| json!({ "arguments": piece, "type": "arguments_delta" }));
            let step = json!({ "type": "function_call", "id": id, "name": name, "arguments": {} });
            (step, pieces.collect())
        }
    }
}

impl Column for InteractionsColumn {
    type Protocol = Interactions;

    const LACKS: &'static [(&'static str, &'static str)] = &[
        ("a_refusal", "a refusal is text"),
        (
            "why_the_model_stopped",
            "what is blocked is an error without usage: see its own tests",
        ),
        (
            "what_the_protocol_lacks_is_an_error_before_anything_is_sent",
            "it carries every part that there is",
        ),
    ];
    const LINE: &'static str = "POST /v1/interactions";
    const MESSAGES: &'static str = "input";
    /// `[DONE]`.
    const SPARE_EVENTS: usize = 1;

    fn events(answer: &Answer) -> Vec<String> {
        let created = json!({
            "id": "", "status": "in_progress", "object": "interaction",
            "model": "test-model-2026",
        });
        let running = json!({ "interaction_id": "", "status": "in_progress" });
        let mut events = vec![
            event("interaction.created", json!({ "interaction": created })),
            event("interaction.status_update", running),
        ];
        for (index, bit) in answer.bits.iter().enumerate() {
            let (step, pieces) = pieces(bit);
            events.push(event("step.start", json!({ "index": index, "step": step })));
            for delta in pieces {
                events.push(event(
                    "step.delta",
                    json!({ "index": index, "delta": delta }),
                ));
            }
            events.push(event("step.stop", json!({ "index": index })));
        }
        let last = json!({ "interaction": interaction(answer) });
        events.push(event("interaction.completed", last));
        events.push("event: done\ndata: [DONE]\n\n".into());
        events
    }

    fn body(answer: &Answer) -> Value {
        let mut body = interaction(answer);
        body["steps"] = answer.bits.iter().map(step).collect();
        body
    }

    /// Without ids, indexes, names of events, ends of steps, starts of what shows what it is, and
    /// `[DONE]`.
    fn sparse_events(answer: &Answer) -> Vec<String> {
        let mut events = Vec::new();
        let mut push = |data: Value| events.push(format!("data: {data}\n\n"));
        for bit in &answer.bits {
            let (mut step, pieces) = pieces(bit);
            if let Bit::Call { .. } = bit {
                step.as_object_mut().unwrap().remove("arguments");
                push(json!({ "event_type": "step.start", "step": step }));
            }
            for delta in pieces {
                push(json!({ "event_type": "step.delta", "delta": delta }));
            }
        }
        push(json!({ "event_type": "interaction.completed", "interaction": {} }));
        events
    }

    fn sparse_body(answer: &Answer) -> Value {
        json!({ "steps": answer.bits.iter().map(step).collect::<Vec<_>>() })
    }

    fn unknown_event() -> String {
        event(
            "step.surprise",
            json!({ "index": 9, "delta": { "type": "text", "text": "?" } }),
        )
    }

    fn error_event() -> String {
        let error = json!({ "message": "Overloaded.", "code": "service_unavailable" });
        event("error", json!({ "error": error }))
    }

    fn error_body() -> (u16, Value) {
        let error = json!({ "message": "Slow down.", "code": "rate_limit_exceeded" });
        (429, json!({ "error": error }))
    }

    fn key_header() -> (HeaderName, HeaderValue) {
        (
            HeaderName::from_static("x-goog-api-key"),
            HeaderValue::from_static("k"),
        )
    }

    fn sent_back(body: &Value) -> Vec<Sent> {
        assert_eq!(body["store"], false);
        let mut sent = Vec::new();
        for step in body["input"].as_array().unwrap() {
            let text = |field: &str| step[field].as_str().unwrap().to_owned();
            match step["type"].as_str().unwrap() {
                "model_output" => {
                    for content in step["content"].as_array().unwrap() {
                        assert_eq!(content["type"], "text");
                        sent.push(Sent::Text(content["text"].as_str().unwrap().into()));
                    }
                }
                "thought" if step["signature"] == NO_SIGNATURE => {}
                "thought" => sent.push(Sent::Reasoning(text("signature"))),
                "function_call" => {
                    assert!(step["arguments"].is_object(), "{step}");
                    sent.push(Sent::Call(text("id")));
                }
                "function_result" => {
                    assert!(step["name"].is_string(), "{step}");
                    sent.push(Sent::Result(text("call_id")));
                }
                "user_input" => assert!(step["content"].is_array(), "{step}"),
                other => panic!("{other}"),
            }
        }
        sent
    }

    /// There is none: see what it lacks.
    fn unsupported_part() -> Part {
        Part::from_text("")
    }
}
