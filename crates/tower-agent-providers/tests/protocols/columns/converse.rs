//! Bedrock's Converse.

use serde_json::{Value, json};
use tower_agent::message::{MediaSource, Part, Usage};
use tower_agent_providers::bedrock::Converse;

use crate::answer::{Answer, Bit, End};
use crate::column::{Column, Sent};
use crate::frames;

pub struct ConverseColumn;

fn event(kind: &str, data: Value) -> String {
    format!("{kind} {data}\n")
}

fn stop_reason(answer: &Answer) -> &'static str {
    match answer.end {
        End::Natural if answer.has_calls() => "tool_use",
        End::Natural => "end_turn",
        End::Length => "max_tokens",
        End::ContentFilter => "guardrail_intervened",
    }
}

fn usage() -> Value {
    json!({
        "inputTokens": 15,
        "outputTokens": 10,
        "totalTokens": 30,
        "cacheReadInputTokens": 5,
        "cacheWriteInputTokens": 0,
    })
}

/// The block of a bit, and the start and the pieces in which it is streamed.
fn block(bit: &Bit) -> (Value, Option<Value>, Vec<Value>) {
    match bit {
        Bit::Text(words) | Bit::Refusal(words) => {
            let pieces = words.iter().map(|text| json!({ "text": text }));
            (json!({ "text": words.concat() }), None, pieces.collect())
        }
        Bit::Reasoning { words, data } => {
            let text = json!({ "text": words.concat(), "signature": data });
            let pieces = words
                .iter()
                .map(|text| json!({ "reasoningContent": { "text": text } }));
            let signature = json!({ "reasoningContent": { "signature": data } });
            (
                json!({ "reasoningContent": { "reasoningText": text } }),
                None,
                pieces.chain([signature]).collect(),
            )
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
            let pieces = arguments
                .iter()
                .map(|input| json!({ "toolUse": { "input": input } }));
            (
                json!({ "toolUse": { "toolUseId": id, "name": name, "input": input } }),
                Some(json!({ "toolUse": { "toolUseId": id, "name": name } })),
                pieces.collect(),
            )
        }
    }
}

impl Column for ConverseColumn {
    type Protocol = Converse;

    const LACKS: &'static [(&'static str, &'static str)] = &[
        (
            "a_refusal",
            "a refusal is not text: it is the reason why the whole answer ended",
        ),
        (
            "tools_of_the_server_stand_beside_those_of_the_agent",
            "the tools stand in `toolConfig`, of which there is a test of its own",
        ),
        (
            "no_extra_field_removes_what_the_agent_has_set",
            "the tools stand in `toolConfig`, of which there is a test of its own",
        ),
    ];

    const LINE: &'static str = "POST /v1/model/test-model/converse";
    const MESSAGES: &'static str = "messages";
    const CALL_ID_LENGTH: usize = 64;
    const HAS_MODEL: bool = false;

    fn framed(event: &str) -> Vec<u8> {
        let (kind, data) = event.trim().split_once(' ').unwrap();
        match kind.strip_suffix("Exception") {
            Some(_) => frames::exception(kind, data),
            None => frames::event(kind, data),
        }
    }

    fn events(answer: &Answer) -> Vec<String> {
        let mut events = vec![event(
            "messageStart",
            json!({ "role": "assistant", "p": "abcdefgh" }),
        )];
        for (index, bit) in answer.bits.iter().enumerate() {
            let (_, start, pieces) = block(bit);
            if let Some(start) = start {
                events.push(event(
                    "contentBlockStart",
                    json!({ "start": start, "contentBlockIndex": index, "p": "abc" }),
                ));
            }
            for delta in pieces {
                events.push(event(
                    "contentBlockDelta",
                    json!({ "delta": delta, "contentBlockIndex": index, "p": "abcde" }),
                ));
            }
            events.push(event(
                "contentBlockStop",
                json!({ "contentBlockIndex": index, "p": "a" }),
            ));
        }
        let stop = json!({ "stopReason": stop_reason(answer), "p": "abcd" });
        events.push(event("messageStop", stop));
        let mut metadata = json!({ "metrics": { "latencyMs": 551 }, "p": "ab" });
        if answer.has_usage {
            metadata["usage"] = usage();
        }
        events.push(event("metadata", metadata));
        events
    }

    fn body(answer: &Answer) -> Value {
        let content: Vec<_> = answer.bits.iter().map(|bit| block(bit).0).collect();
        let mut body = json!({
            "metrics": { "latencyMs": 551 },
            "output": { "message": { "content": content, "role": "assistant" } },
            "stopReason": stop_reason(answer),
        });
        if answer.has_usage {
            body["usage"] = usage();
        }
        body
    }

    /// No usage, no start of the message, no ends of blocks, no indices.
    fn sparse_events(answer: &Answer) -> Vec<String> {
        let mut events = Vec::new();
        for bit in &answer.bits {
            let (_, start, pieces) = block(bit);
            if let Some(start) = start {
                events.push(event("contentBlockStart", json!({ "start": start })));
            }
            for delta in pieces {
                events.push(event("contentBlockDelta", json!({ "delta": delta })));
            }
        }
        events.push(event(
            "messageStop",
            json!({ "stopReason": stop_reason(answer) }),
        ));
        events.push(event("metadata", json!({})));
        events
    }

    fn sparse_body(answer: &Answer) -> Value {
        let content: Vec<_> = answer.bits.iter().map(|bit| block(bit).0).collect();
        json!({ "output": { "message": { "content": content } } })
    }

    fn unknown_event() -> String {
        event("contentBlockProgress", json!({ "progress": 0.5 }))
    }

    fn error_event() -> String {
        event(
            "serviceUnavailableException",
            json!({ "message": "Overloaded." }),
        )
    }

    fn error_body() -> (u16, Value) {
        (
            429,
            json!({ "__type": "ThrottlingException", "message": "Slow down." }),
        )
    }

    fn sent_back(body: &Value) -> Vec<Sent> {
        let messages = body["messages"].as_array().unwrap();
        let blocks = messages.iter().flat_map(|message| {
            let is_user = message["role"] == "user";
            let content = message["content"].as_array().unwrap();
            content.iter().map(move |block| (is_user, block))
        });
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let sent = blocks.filter_map(|(is_user, block)| {
            let (kind, value) = block.as_object().unwrap().iter().next().unwrap();
            match &**kind {
                "text" if is_user => None,
                "text" => Some(Sent::Text(word(value))),
                "reasoningContent" => {
                    Some(Sent::Reasoning(word(&value["reasoningText"]["signature"])))
                }
                "toolUse" => Some(Sent::Call(word(&value["toolUseId"]))),
                "toolResult" => Some(Sent::Result(word(&value["toolUseId"]))),
                other => panic!("{other}"),
            }
        });
        sent.collect()
    }

    fn usage() -> Usage {
        let mut usage = Usage::new(20, 10);
        usage.cached_input_tokens = 5;
        usage
    }

    fn unsupported_part() -> Part {
        Part::image(MediaSource::url("https://a.example/b.png"))
    }
}
