//! The work of a protocol without I/O: a request's body, and the text of a streamed response.

use std::hint::black_box;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tower_agent::message::{ToolCall, ToolResult};
use tower_agent::model::ModelResponse;
use tower_agent::stream::{Attempt, Piece};
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Message, ModelRequest, Part, Role};
use tower_agent_providers::Protocol;
use tower_agent_providers::protocol::{Call, Decoder, Event};

use super::work::finish;

/// The messages of the request.
pub const MESSAGES: usize = 40;
/// The deltas of the response.
pub const WORDS: usize = 1000;

/// Encodes a conversation with tool calls, none of which was encoded before.
pub fn encoded<P: Protocol + Default>() -> Box<dyn FnMut()> {
    let (protocol, request) = (P::default(), request());
    Box::new(move || {
        let mut body = Vec::new();
        let call = Call::new(black_box(&request)).with_model("a-model");
        protocol.encode(&call, &mut body).unwrap();
        black_box(body);
    })
}

/// Decodes a streamed response of many words.
pub fn decoded<P: Protocol + Default>(words: [&'static str; 3]) -> Box<dyn FnMut()> {
    let (protocol, request) = (P::default(), ModelRequest::new([Message::user("Talk.")]));
    let [before, word, after] = words;
    Box::new(move || {
        let mut decoder = protocol.decoder(&Call::new(&request).with_model("a-model"));
        let mut attempt = Attempt::unseen();
        let mut pieces: Vec<Piece> = Vec::new();
        let lines = before
            .lines()
            .chain(std::iter::repeat_n(word, WORDS))
            .chain(after.lines());
        finish(async {
            for line in lines.filter(|line| !line.is_empty()) {
                let _ = decoder
                    .event(Event::new(black_box(line)), &mut pieces)
                    .unwrap();
                for piece in pieces.drain(..) {
                    attempt.send(piece).await.unwrap();
                }
            }
            let response: ModelResponse = decoder.finish(attempt.finish().await.unwrap());
            assert_eq!(response.message().text().len(), WORDS * "a word ".len());
        });
    })
}

/// Reads the words of chat completions as a program may that knows the chunk before: what is around
/// a text is compared with it, and a chunk that differs elsewhere, of which there is none here,
/// would be read as a whole.
pub fn read_by_hand() {
    const KEY: &str = r#""content":""#;
    let before = CHAT[1];
    let start = before.find(KEY).unwrap() + KEY.len();
    let end = start + before[start..].find('"').unwrap();
    let (head, tail) = (&before[..start], &before[end..]);
    for _ in 0..WORDS {
        let chunk = black_box(CHAT[1]);
        let rest = chunk.strip_prefix(black_box(head)).unwrap();
        let text = rest.strip_suffix(black_box(tail)).unwrap();
        assert!(!text.contains(['"', '\\']));
        black_box(text.to_owned());
    }
}

/// Reads the words of chat completions with derived structs, which have only what a delta needs:
/// what a straightforward program does, and more than the least, see [`read_by_hand`].
pub fn read_alone() {
    for _ in 0..WORDS {
        let chunk: Chunk<'_> = serde_json::from_str(black_box(CHAT[1])).unwrap();
        let [choice] = &chunk.choices[..] else {
            panic!("it has one choice");
        };
        assert!(choice.delta.content.is_some() && choice.finish_reason.is_none());
        black_box((chunk.id, chunk.model, chunk.usage));
    }
}

/// A chunk of chat completions.
#[derive(Deserialize)]
struct Chunk<'a> {
    id: &'a str,
    model: &'a str,
    choices: Vec<Choice<'a>>,
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    delta: ChunkDelta,
    finish_reason: Option<&'a str>,
}

#[derive(Deserialize)]
struct ChunkDelta {
    content: Option<String>,
}

fn request() -> ModelRequest {
    let messages = (0..MESSAGES / 4).flat_map(|turn| {
        let call = ToolCall::new(format!("call_{turn}"), "add", json!({ "a": turn, "b": 1 }));
        let result = ToolResult::new(&call, [Part::from_text("The sum is known.")]);
        [
            Message::user("Add one to the number of this turn, and say what it is."),
            Message::new(Role::Assistant, [Part::from(call)]),
            Message::tool(result),
            Message::assistant("The number after that of this turn is the sum that was found."),
        ]
    });
    let parameters = json!({
        "type": "object",
        "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
        "required": ["a", "b"],
    });
    let add = ToolDeclaration::new("add", "Adds two numbers.").with_parameters(parameters);
    let mut request = ModelRequest::new(messages.collect::<Vec<_>>());
    request.set_instructions(Some("Answer in one sentence.".into()));
    request.with_tools(Arc::new(vec![Arc::new(add)]))
}

/// A response of chat completions, with the fields that OpenAI sends in each chunk.
pub const CHAT: [&str; 3] = [
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1741476777,"model":"a-model","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x8"}"#,
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1741476777,"model":"a-model","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{"content":"a word "},"logprobs":null,"finish_reason":null}],"usage":null,"obfuscation":"x8"}"#,
    r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1741476777,"model":"a-model","service_tier":"default","system_fingerprint":"fp_44709d6fcb","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null,"obfuscation":"x8"}"#,
];

/// A response of Responses.
pub const RESPONSES: [&str; 3] = [
    r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","model":"a-model","output":[]}}
{"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"msg_1","type":"message","status":"in_progress","content":[],"role":"assistant"}}
{"type":"response.content_part.added","sequence_number":2,"item_id":"msg_1","output_index":0,"content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""}}"#,
    r#"{"type":"response.output_text.delta","sequence_number":3,"item_id":"msg_1","output_index":0,"content_index":0,"delta":"a word ","logprobs":[],"obfuscation":"x8"}"#,
    r#"{"type":"response.completed","sequence_number":4,"response":{"id":"resp_1","object":"response","status":"completed","model":"a-model","output":[],"usage":{"input_tokens":20,"output_tokens":10}}}"#,
];

/// A response of Anthropic Messages.
pub const ANTHROPIC: [&str; 3] = [
    r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"a-model","content":[],"stop_reason":null,"usage":{"input_tokens":20,"output_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a word "}}"#,
    r#"{"type":"content_block_stop","index":0}
{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":10}}
{"type":"message_stop"}"#,
];

/// A response of Gemini, which counts the tokens in each chunk.
pub const GEMINI: [&str; 3] = [
    "",
    r#"{"candidates":[{"content":{"parts":[{"text":"a word "}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":3,"totalTokenCount":30,"promptTokensDetails":[{"modality":"TEXT","tokenCount":20}],"thoughtsTokenCount":7},"modelVersion":"a-model","responseId":"resp_1"}"#,
    r#"{"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":20,"candidatesTokenCount":3,"totalTokenCount":30},"modelVersion":"a-model","responseId":"resp_1"}"#,
];

/// A response of Gemini's Interactions API.
pub const INTERACTIONS: [&str; 3] = [
    r#"{"interaction":{"id":"v1_1","status":"in_progress","object":"interaction","model":"a-model"},"event_type":"interaction.created"}
{"interaction_id":"v1_1","status":"in_progress","event_type":"interaction.status_update"}
{"index":0,"step":{"type":"model_output"},"event_type":"step.start"}"#,
    r#"{"index":0,"delta":{"text":"a word ","type":"text"},"event_type":"step.delta"}"#,
    r#"{"index":0,"event_type":"step.stop"}
{"interaction":{"id":"v1_1","status":"completed","usage":{"total_tokens":30,"total_input_tokens":20,"total_cached_tokens":0,"total_output_tokens":3,"total_thought_tokens":7},"object":"interaction","model":"a-model"},"event_type":"interaction.completed"}"#,
];

/// A response of Ollama.
pub const OLLAMA: [&str; 3] = [
    "",
    r#"{"model":"a-model","created_at":"2026-11-22T08:00:00.123456Z","message":{"role":"assistant","content":"a word "},"done":false}"#,
    r#"{"model":"a-model","created_at":"2026-11-22T08:00:01.123456Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":4883583458,"load_duration":1334875,"prompt_eval_count":20,"prompt_eval_duration":342546000,"eval_count":10,"eval_duration":4535599000}"#,
];
