//! How an answer ends: what each finish reason of each protocol promises, against what has come.

use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};
use tower_agent::message::NoAnswer;
use tower_agent::model::{BoxModel, FinishReason};
use tower_agent::{Agent, EndReason, Error, ErrorKind, Message, ModelRequest, ModelResponse, Tool};
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::bedrock::Converse;
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::ollama::Chat as OllamaChat;
use tower_agent_providers::openai::{Chat, Responses};
use tower_agent_providers::protocol::Protocol;
use tower_agent_providers::{HttpModel, RequestBody};

use crate::frames;
use test_support::{call, stream};

/// What has come before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Nothing,
    /// A call whose arguments broke off.
    HalfACall,
    ACall,
    Text,
    Both,
}

const ALL: [Came; 5] = [
    Came::Nothing,
    Came::HalfACall,
    Came::ACall,
    Came::Text,
    Came::Both,
];

impl Came {
    fn has_text(self) -> bool {
        matches!(self, Self::Text | Self::Both)
    }

    /// The arguments of the call, if there is one.
    fn arguments(self) -> Option<&'static str> {
        match self {
            Self::HalfACall => Some("{\"at\":"),
            Self::ACall | Self::Both => Some("{\"at\":1}"),
            Self::Nothing | Self::Text => None,
        }
    }
}

/// What a word promises.
#[derive(Clone, Debug, PartialEq)]
enum Promises {
    Whole,
    ACall,
    Ends(FinishReason),
    Breaks(ErrorKind),
}
use Promises::{ACall, Breaks, Ends, Whole};

/// How a word in this protocol ends what has come.
fn expected(promises: &Promises, came: Came) -> Result<FinishReason, ErrorKind> {
    let has_call = came.arguments().is_some();
    match promises {
        Breaks(kind) => Err(*kind),
        ACall if !has_call => Err(ErrorKind::Provider),
        Ends(reason) => Ok(reason.clone()),
        ACall | Whole if has_call => Ok(FinishReason::ToolCalls),
        ACall | Whole => Ok(FinishReason::Stop),
    }
}

type Body = (&'static str, Vec<u8>);

/// A protocol's words, and its answers with one of them.
trait Ending: Protocol + Default {
    fn words() -> Vec<(&'static str, Promises)>;

    fn plain(came: Came, word: &str) -> Value;

    fn streamed(came: Came, word: &str) -> Body;

    /// Whether the protocol can have what came: some have whole calls alone.
    fn can(came: Came) -> bool {
        let _ = came;
        true
    }
}

fn events(all: impl IntoIterator<Item = Value>) -> Body {
    let all: Vec<_> = all.into_iter().collect();
    let body = all.iter().map(|event| format!("data: {event}\n\n"));
    ("text/event-stream", body.collect::<String>().into())
}

fn other(word: &'static str) -> Promises {
    Ends(FinishReason::Other(word.into()))
}

impl Ending for Chat {
    fn words() -> Vec<(&'static str, Promises)> {
        vec![
            ("stop", Whole),
            ("tool_calls", ACall),
            ("function_call", ACall),
            ("length", Ends(FinishReason::Length)),
            ("model_length", Ends(FinishReason::Length)),
            ("model_context_window_exceeded", Ends(FinishReason::Length)),
            ("content_filter", Ends(FinishReason::ContentFilter)),
            ("sensitive", Ends(FinishReason::ContentFilter)),
            ("error", Breaks(ErrorKind::Provider)),
            ("abort", Breaks(ErrorKind::Provider)),
            (
                "insufficient_system_resource",
                Breaks(ErrorKind::Overloaded),
            ),
            ("network_error", Breaks(ErrorKind::Connection)),
            ("surprise", other("surprise")),
        ]
    }

    fn plain(came: Came, word: &str) -> Value {
        let mut message = json!({ "role": "assistant", "content": null });
        if came.has_text() {
            message["content"] = "I look.".into();
        }
        if let Some(arguments) = came.arguments() {
            let function = json!({ "name": "look", "arguments": arguments });
            message["tool_calls"] =
                json!([{ "id": "a", "type": "function", "function": function }]);
        }
        json!({ "choices": [{ "index": 0, "message": message, "finish_reason": word }] })
    }

    fn streamed(came: Came, word: &str) -> Body {
        let chunk = |delta: Value, word: Value| json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": word }] });
        let mut all = Vec::new();
        if came.has_text() {
            all.push(chunk(json!({ "content": "I look." }), Value::Null));
        }
        if let Some(arguments) = came.arguments() {
            let function = json!({ "name": "look", "arguments": arguments });
            let call = json!({ "index": 0, "id": "a", "function": function });
            all.push(chunk(json!({ "tool_calls": [call] }), Value::Null));
        }
        all.push(chunk(json!({}), word.into()));
        all.push(json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } }));
        let (kind, mut body) = events(all);
        body.extend(b"data: [DONE]\n\n");
        (kind, body)
    }
}

impl Ending for Messages {
    fn words() -> Vec<(&'static str, Promises)> {
        vec![
            ("end_turn", Whole),
            ("stop_sequence", Whole),
            ("tool_use", ACall),
            ("max_tokens", Ends(FinishReason::Length)),
            ("model_context_window_exceeded", Ends(FinishReason::Length)),
            ("refusal", Ends(FinishReason::ContentFilter)),
            ("pause_turn", Ends(FinishReason::PauseTurn)),
            ("abort", Breaks(ErrorKind::Provider)),
            ("surprise", other("surprise")),
        ]
    }

    fn plain(came: Came, word: &str) -> Value {
        let mut content = Vec::new();
        if came.has_text() {
            content.push(json!({ "type": "text", "text": "I look." }));
        }
        if let Some(arguments) = came.arguments() {
            let input: Value = serde_json::from_str(arguments).unwrap();
            content.push(json!({ "type": "tool_use", "id": "a", "name": "look", "input": input }));
        }
        json!({ "id": "m", "type": "message", "role": "assistant", "content": content, "stop_reason": word })
    }

    fn streamed(came: Came, word: &str) -> Body {
        let mut all = vec![json!({ "type": "message_start", "message": { "content": [] } })];
        let mut block = |start: Value, delta: Value| {
            all.push(json!({ "type": "content_block_start", "index": 0, "content_block": start }));
            all.push(json!({ "type": "content_block_delta", "index": 0, "delta": delta }));
            all.push(json!({ "type": "content_block_stop", "index": 0 }));
        };
        if came.has_text() {
            block(
                json!({ "type": "text", "text": "" }),
                json!({ "type": "text_delta", "text": "I look." }),
            );
        }
        if let Some(arguments) = came.arguments() {
            block(
                json!({ "type": "tool_use", "id": "a", "name": "look", "input": {} }),
                json!({ "type": "input_json_delta", "partial_json": arguments }),
            );
        }
        all.push(json!({ "type": "message_delta", "delta": { "stop_reason": word } }));
        all.push(json!({ "type": "message_stop" }));
        events(all)
    }
}

impl Ending for Responses {
    fn words() -> Vec<(&'static str, Promises)> {
        vec![
            ("completed", Whole),
            ("max_output_tokens", Ends(FinishReason::Length)),
            ("content_filter", Ends(FinishReason::ContentFilter)),
            ("failed", Breaks(ErrorKind::Provider)),
            ("cancelled", Breaks(ErrorKind::Provider)),
            ("network_error", Breaks(ErrorKind::Connection)),
            ("surprise", other("surprise")),
        ]
    }

    fn plain(came: Came, word: &str) -> Value {
        let mut output = Vec::new();
        if came.has_text() {
            let content = json!([{ "type": "output_text", "text": "I look." }]);
            output.push(
                json!({ "type": "message", "id": "m", "role": "assistant", "content": content }),
            );
        }
        if let Some(arguments) = came.arguments() {
            output.push(
                json!({ "type": "function_call", "id": "f", "call_id": "a", "name": "look",
                                "arguments": arguments }),
            );
        }
        match word {
            "completed" | "failed" | "cancelled" => {
                json!({ "id": "r", "status": word, "output": output })
            }
            reason => json!({ "id": "r", "status": "incomplete", "output": output,
                              "incomplete_details": { "reason": reason } }),
        }
    }

    fn streamed(came: Came, word: &str) -> Body {
        let response = Self::plain(came, word);
        let status = response["status"].as_str().unwrap();
        let kind = match status {
            "cancelled" => "response.done".to_owned(),
            status => format!("response.{status}"),
        };
        events([json!({ "type": kind, "response": response })])
    }
}

impl Ending for GenerateContent {
    fn words() -> Vec<(&'static str, Promises)> {
        let mut words = vec![
            ("STOP", Whole),
            ("FUNCTION_CALL", ACall),
            ("MAX_TOKENS", Ends(FinishReason::Length)),
            (
                "MISSING_THOUGHT_SIGNATURE",
                Breaks(ErrorKind::InvalidRequest),
            ),
            ("OTHER", other("OTHER")),
            ("LANGUAGE", other("LANGUAGE")),
            ("SURPRISE", other("SURPRISE")),
        ];
        let filters = [
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
        ];
        words.extend(filters.map(|word| (word, Ends(FinishReason::ContentFilter))));
        let broken = [
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MALFORMED_RESPONSE",
        ];
        words.extend(broken.map(|word| (word, Breaks(ErrorKind::Provider))));
        words
    }

    fn plain(came: Came, word: &str) -> Value {
        let mut parts = Vec::new();
        if came.has_text() {
            parts.push(json!({ "text": "I look." }));
        }
        if let Some(arguments) = came.arguments() {
            let args: Value = serde_json::from_str(arguments).unwrap();
            parts.push(json!({ "functionCall": { "id": "a", "name": "look", "args": args } }));
        }
        json!({ "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": word }] })
    }

    fn streamed(came: Came, word: &str) -> Body {
        events([Self::plain(came, word)])
    }

    fn can(came: Came) -> bool {
        came != Came::HalfACall
    }
}

impl Ending for Interactions {
    fn words() -> Vec<(&'static str, Promises)> {
        vec![
            ("completed", Whole),
            ("requires_action", ACall),
            ("incomplete", Ends(FinishReason::Length)),
            ("budget_exceeded", Ends(FinishReason::Length)),
            ("requires_continuation", Ends(FinishReason::Length)),
            ("failed", Breaks(ErrorKind::Provider)),
            ("cancelled", Breaks(ErrorKind::Provider)),
            ("surprise", other("surprise")),
        ]
    }

    fn plain(came: Came, word: &str) -> Value {
        let mut steps = Vec::new();
        if came.has_text() {
            let content = json!([{ "type": "text", "text": "I look." }]);
            steps.push(json!({ "type": "model_output", "content": content }));
        }
        if let Some(arguments) = came.arguments() {
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            steps.push(json!({ "type": "function_call", "id": "a", "name": "look", "arguments": arguments }));
        }
        json!({ "id": "i", "status": word, "steps": steps })
    }

    fn streamed(came: Came, word: &str) -> Body {
        let interaction = Self::plain(came, word);
        events([json!({ "event_type": "interaction.completed", "interaction": interaction })])
    }

    fn can(came: Came) -> bool {
        came != Came::HalfACall
    }
}

impl Ending for OllamaChat {
    fn words() -> Vec<(&'static str, Promises)> {
        vec![
            ("stop", Whole),
            ("length", Ends(FinishReason::Length)),
            ("error", Breaks(ErrorKind::Provider)),
            ("surprise", other("surprise")),
        ]
    }

    fn plain(came: Came, word: &str) -> Value {
        let mut message = json!({ "role": "assistant", "content": "" });
        if came.has_text() {
            message["content"] = "I look.".into();
        }
        if let Some(arguments) = came.arguments() {
            let function = json!({ "name": "look", "arguments": arguments });
            message["tool_calls"] = json!([{ "function": function }]);
        }
        json!({ "model": "m", "message": message, "done": true, "done_reason": word })
    }

    fn streamed(came: Came, word: &str) -> Body {
        (
            "application/x-ndjson",
            format!("{}\n", Self::plain(came, word)).into(),
        )
    }
}

impl Ending for Converse {
    fn words() -> Vec<(&'static str, Promises)> {
        vec![
            ("end_turn", Whole),
            ("stop_sequence", Whole),
            ("tool_use", ACall),
            ("max_tokens", Ends(FinishReason::Length)),
            ("model_context_window_exceeded", Ends(FinishReason::Length)),
            ("guardrail_intervened", Ends(FinishReason::ContentFilter)),
            ("content_filtered", Ends(FinishReason::ContentFilter)),
            ("malformed_tool_use", Breaks(ErrorKind::Provider)),
            ("malformed_model_output", Breaks(ErrorKind::Provider)),
            ("surprise", other("surprise")),
        ]
    }

    fn plain(came: Came, word: &str) -> Value {
        let mut content = Vec::new();
        if came.has_text() {
            content.push(json!({ "text": "I look." }));
        }
        if let Some(arguments) = came.arguments() {
            let input: Value = serde_json::from_str(arguments).unwrap();
            content
                .push(json!({ "toolUse": { "toolUseId": "a", "name": "look", "input": input } }));
        }
        json!({ "output": { "message": { "role": "assistant", "content": content } }, "stopReason": word })
    }

    fn streamed(came: Came, word: &str) -> Body {
        let mut body = Vec::new();
        let mut push =
            |name: &str, data: Value| body.extend(frames::event(name, &data.to_string()));
        if came.has_text() {
            let delta = json!({ "text": "I look." });
            push(
                "contentBlockDelta",
                json!({ "delta": delta, "contentBlockIndex": 0 }),
            );
            push("contentBlockStop", json!({ "contentBlockIndex": 0 }));
        }
        if let Some(arguments) = came.arguments() {
            let start = json!({ "toolUse": { "toolUseId": "a", "name": "look" } });
            push(
                "contentBlockStart",
                json!({ "start": start, "contentBlockIndex": 1 }),
            );
            let delta = json!({ "toolUse": { "input": arguments } });
            push(
                "contentBlockDelta",
                json!({ "delta": delta, "contentBlockIndex": 1 }),
            );
            push("contentBlockStop", json!({ "contentBlockIndex": 1 }));
        }
        push("messageStop", json!({ "stopReason": word }));
        push(
            "metadata",
            json!({ "usage": { "inputTokens": 3, "outputTokens": 4 } }),
        );
        ("application/vnd.amazon.eventstream", body)
    }
}

fn model<P: Ending>((kind, body): Body) -> BoxModel {
    let service = tower::service_fn(move |_: http::Request<RequestBody>| {
        let response = http::Response::builder().header("content-type", kind);
        let response = response.body(Full::new(Bytes::from(body.clone()))).unwrap();
        async move { Ok::<_, std::io::Error>(response) }
    });
    let builder = HttpModel::<P, ()>::builder().base_url("http://server/v1");
    BoxModel::new(builder.api_key("k").model("m").build_with(service).unwrap())
}

async fn answers<P: Ending>(came: Came, word: &str) -> Vec<Result<ModelResponse, Error>> {
    let request = || ModelRequest::new([Message::user("hi")]);
    let mut answers = vec![
        stream(model::<P>(P::streamed(came, word)), request())
            .await
            .0,
    ];
    // Arguments that are an object cannot be half of one.
    let has_text =
        P::PROVIDER == "openai" || P::PROVIDER == "openai_responses" || P::PROVIDER == "ollama";
    if came != Came::HalfACall || has_text {
        let body = P::plain(came, word).to_string();
        answers.push(call(model::<P>(("application/json", body.into())), request()).await);
    }
    answers
}

async fn each_word_ends_what_has_come<P: Ending>() {
    for (word, promises) in P::words() {
        for came in ALL {
            if !P::can(came) {
                continue;
            }
            for answer in answers::<P>(came, word).await {
                let at = format!("{} `{word}` {came:?}: {answer:?}", P::PROVIDER);
                let found = answer.as_ref().map(|answer| answer.finish_reason().clone());
                let found = found.map_err(Error::kind);
                let expected = expected(&promises, came);
                assert_eq!(found, expected, "{at}");
                match answer {
                    Ok(answer) => {
                        let message = answer.message();
                        let is_empty = came == Came::Nothing;
                        let has_none = message.no_answer() == Some(NoAnswer::Empty);
                        let is_usual = matches!(expected, Ok(FinishReason::Stop));
                        assert!(!is_usual || is_empty == has_none, "{at}");
                        let calls = usize::from(came.arguments().is_some());
                        assert_eq!(message.tool_calls().count(), calls, "{at}");
                    }
                    // Of what the provider did not do; what is wrong with the request stays so.
                    Err(error) => {
                        let is_invalid = error.kind() == ErrorKind::InvalidRequest;
                        assert_eq!(error.is_retryable(), !is_invalid, "{at}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn chat_completions() {
    each_word_ends_what_has_come::<Chat>().await;
}

#[tokio::test]
async fn responses() {
    each_word_ends_what_has_come::<Responses>().await;
}

#[tokio::test]
async fn anthropic() {
    each_word_ends_what_has_come::<Messages>().await;
}

#[tokio::test]
async fn gemini() {
    each_word_ends_what_has_come::<GenerateContent>().await;
}

#[tokio::test]
async fn interactions() {
    each_word_ends_what_has_come::<Interactions>().await;
}

#[tokio::test]
async fn ollama() {
    each_word_ends_what_has_come::<OllamaChat>().await;
}

#[tokio::test]
async fn converse() {
    each_word_ends_what_has_come::<Converse>().await;
}

/// A call that is not one: unwrapped in the text, in the old field, or in a list without any.
#[tokio::test]
async fn a_promised_call_that_cannot_be_read_ends_no_run_as_a_success() {
    let unwrapped =
        json!({ "role": "assistant", "content": "{\"name\":\"look\",\"arguments\":{}}" });
    let old = json!({ "role": "assistant", "content": null, "function_call": { "name": "look", "arguments": "{}" } });
    let empty = json!({ "role": "assistant", "content": "Let me look.", "tool_calls": [] });
    let nothing = json!({ "role": "assistant", "content": "Let me look.", "tool_calls": [null] });
    let no_list = json!({ "role": "assistant", "content": "Let me look.", "tool_calls": "look()" });
    for message in [unwrapped, old, empty, nothing, no_list] {
        let choice = json!({ "index": 0, "message": message, "finish_reason": "tool_calls" });
        let body = json!({ "choices": [choice] }).to_string();
        let model = model::<Chat>(("application/json", body.into()));
        let look = Tool::function("look", "Looks.", |_: Value| "a cat");
        let agent = Agent::builder(model).tool(look).build().unwrap();
        let error = agent.run("hi").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Provider, "{message}");
        assert!(
            error.message().contains("no call that can be read"),
            "{error}"
        );
    }
}

/// A call that was cut off before its name was none, and the answer is one that was cut off.
#[tokio::test]
async fn a_call_without_a_name_in_an_answer_that_was_cut_off() {
    let call = json!({ "index": 0, "id": "a", "function": { "arguments": "{" } });
    let chunk =
        json!({ "choices": [{ "index": 0, "delta": { "content": "I", "tool_calls": [call] } }] });
    let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "length" }] });
    let agent = Agent::builder(model::<Chat>(events([chunk, end])))
        .build()
        .unwrap();
    let response = agent.stream("hi").response().await.unwrap();
    assert_eq!(response.text(), "I");
    assert_eq!(
        *response.end_reason(),
        EndReason::NoAnswer(NoAnswer::CutOff)
    );
}
