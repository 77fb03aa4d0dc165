//! Gemini's `generateContent`.

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tower_agent::message::Part;
use tower_agent_providers::gemini::GenerateContent;

use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};

pub struct GeminiColumn;

/// The signature that Google documents for a call that no Gemini model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

fn chunk(parts: Vec<Value>) -> Value {
    json!({
        "candidates": [{ "content": { "parts": parts, "role": "model" }, "index": 0 }],
        "usageMetadata": {
            "promptTokenCount": 20,
            "totalTokenCount": 20,
            "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 20 }],
        },
        "modelVersion": "test-model-2026",
        "responseId": "resp_1",
    })
}

/// The end of the last chunk.
fn finish(answer: &Answer, mut chunk: Value) -> Value {
    let reason = match answer.end {
        End::Natural => "STOP",
        End::Length => "MAX_TOKENS",
        End::ContentFilter => "SAFETY",
    };
    chunk["candidates"][0]["finishReason"] = reason.into();
    chunk["usageMetadata"] = json!({
        "promptTokenCount": 20,
        "candidatesTokenCount": 3,
        "totalTokenCount": 30,
        "cachedContentTokenCount": 5,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 20 }],
        "thoughtsTokenCount": 7,
    });
    chunk
}

fn without_usage(answer: &Answer, chunks: Vec<Value>) -> Vec<Value> {
    let strip = |mut chunk: Value| {
        if !answer.has_usage {
            chunk.as_object_mut().unwrap().remove("usageMetadata");
        }
        chunk
    };
    chunks.into_iter().map(strip).collect()
}

/// The same answer, not in pieces.
fn whole(answer: &Answer) -> Answer {
    let whole = |words: &[String]| match words {
        [] => Vec::new(),
        words => vec![words.concat()],
    };
    let bits = answer.bits.iter().cloned().map(|bit| match bit {
        Bit::Text(words) => Bit::Text(whole(&words)),
        Bit::Refusal(words) => Bit::Refusal(whole(&words)),
        Bit::Reasoning { words, data } => Bit::Reasoning {
            words: whole(&words),
            data,
        },
        call => call,
    });
    Answer {
        bits: bits.collect(),
        ..answer.clone()
    }
}

/// The parts, those of one text in pieces. The signature of reasoning stands on the call that
/// follows, or else on the reasoning.
fn parts(answer: &Answer) -> Vec<Value> {
    let mut parts: Vec<Value> = Vec::new();
    let mut signature = None;
    for (at, bit) in answer.bits.iter().enumerate() {
        match bit {
            Bit::Text(words) | Bit::Refusal(words) => {
                parts.extend(words.iter().map(|word| json!({ "text": word })));
            }
            Bit::Reasoning { words, data } => {
                let words = words.iter();
                parts.extend(words.map(|word| json!({ "text": word, "thought": true })));
                let is_open = |bit: &&Bit| !matches!(bit, Bit::Text(_) | Bit::Refusal(_));
                let next = answer.bits[at + 1..].iter().find(is_open);
                match (next, parts.last_mut()) {
                    (Some(Bit::Call { .. }), _) | (_, None) => signature = Some(data),
                    (_, Some(last)) => last["thoughtSignature"] = data.clone().into(),
                }
            }
            Bit::Call {
                id,
                name,
                arguments,
            } => {
                let mut call = json!({ "id": id, "name": name });
                let arguments = arguments.concat();
                if !arguments.is_empty() {
                    call["args"] = serde_json::from_str(&arguments).unwrap();
                }
                let mut part = json!({ "functionCall": call });
                if let Some(signature) = signature.take() {
                    part["thoughtSignature"] = signature.clone().into();
                }
                parts.push(part);
            }
        }
    }
    parts
}

impl Column for GeminiColumn {
    type Protocol = GenerateContent;

    const LACKS: &'static [(&'static str, &'static str)] = &[
        ("a_refusal", "a refusal is text"),
        (
            "deltas_after_the_end",
            "it has no last event: what follows the finish reason counts",
        ),
        (
            "what_the_protocol_lacks_is_an_error_before_anything_is_sent",
            "it carries every part that there is",
        ),
    ];
    const LINE: &'static str = "POST /v1/models/test-model:generateContent";
    const MESSAGES: &'static str = "contents";
    /// Older models send none.
    const HAS_CALL_IDS: bool = false;

    fn events(answer: &Answer) -> Vec<String> {
        let mut chunks: Vec<_> = parts(answer)
            .into_iter()
            .map(|part| chunk(vec![part]))
            .collect();
        chunks.push(finish(answer, chunk(vec![json!({ "text": "" })])));
        without_usage(answer, chunks).iter().map(event).collect()
    }

    fn body(answer: &Answer) -> Value {
        let whole = finish(answer, chunk(parts(&whole(answer))));
        without_usage(answer, vec![whole]).remove(0)
    }

    fn sparse_events(answer: &Answer) -> Vec<String> {
        let mut parts = parts(answer);
        for part in &mut parts {
            if let Some(call) = part["functionCall"].as_object_mut() {
                call.remove("id");
            }
        }
        let chunk = |part: &Value| json!({ "candidates": [{ "content": { "parts": [part] } }] });
        let mut events: Vec<_> = parts.iter().map(|part| event(&chunk(part))).collect();
        events.push(event(
            &json!({ "candidates": [{ "finishReason": "STOP" }] }),
        ));
        events
    }

    fn sparse_body(answer: &Answer) -> Value {
        json!({ "candidates": [{ "content": { "parts": parts(&whole(answer)) } }] })
    }

    fn unknown_event() -> String {
        "event: surprise\ndata: {\"candidates\":[],\"new\":{\"field\":1}}\n\n".into()
    }

    fn error_event() -> String {
        let error = json!({ "code": 503, "message": "Overloaded.", "status": "UNAVAILABLE" });
        event(&json!({ "error": error }))
    }

    fn error_body() -> (u16, Value) {
        let error = json!({ "code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED" });
        (429, json!({ "error": error }))
    }

    fn key_header() -> (HeaderName, HeaderValue) {
        (
            HeaderName::from_static("x-goog-api-key"),
            HeaderValue::from_static("k"),
        )
    }

    fn sent_back(body: &Value) -> Vec<Sent> {
        let mut sent = Vec::new();
        for content in body["contents"].as_array().unwrap() {
            for part in content["parts"].as_array().unwrap() {
                let signature = part["thoughtSignature"].as_str();
                let signature = signature.filter(|signature| *signature != NO_SIGNATURE);
                sent.extend(signature.map(|signature| Sent::Reasoning(signature.into())));
                let id = |of: &Value| of["id"].as_str().unwrap().to_owned();
                match content["role"].as_str().unwrap() {
                    "model" => match part["text"].as_str() {
                        _ if part["thought"] == true => {}
                        Some(text) => sent.push(Sent::Text(text.into())),
                        None => sent.push(Sent::Call(id(&part["functionCall"]))),
                    },
                    _ if part["functionResponse"].is_null() => {}
                    _ => sent.push(Sent::Result(id(&part["functionResponse"]))),
                }
            }
        }
        sent
    }

    /// There is none: see what it lacks.
    fn unsupported_part() -> Part {
        Part::from_text("")
    }
}
