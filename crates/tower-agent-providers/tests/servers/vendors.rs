//! Requests of many conversations and settings are valid by the types of the vendors' own Python
//! packages, with unknown fields forbidden.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use test_support::process::is_installed;
use tower_agent::message::{Media, MediaSource, ToolResult};
use tower_agent::model::{
    CacheRetention, PromptCache, ReasoningEffort, ResponseFormat, ServerTool, ToolChoice,
};
use tower_agent::stream::{Streamed, channel};
use tower_agent::{ErrorKind, Message, ModelRequest, Part, Role, Settings};
use tower_agent_providers::anthropic::Messages;
use tower_agent_providers::gemini::{GenerateContent, Interactions};
use tower_agent_providers::openai::{Chat, Responses};
use tower_agent_providers::protocol::{Call, Decoder, Protocol};

use super::{servers, with_tools};

/// Names a setting, and sets it.
type Setting = (&'static str, fn(&mut Settings));

const SETTINGS: &[Setting] = &[
    ("none", |_| {}),
    ("sampling", |settings| {
        settings.temperature = Some(1.0);
        settings.top_p = Some(0.95);
        settings.max_tokens = Some(2000);
    }),
    ("stop", |settings| settings.stop = vec!["END".into()]),
    ("seed", |settings| settings.seed = Some(7)),
    ("tool choice: auto", |settings| {
        settings.tool_choice = Some(ToolChoice::Auto)
    }),
    ("tool choice: none", |settings| {
        settings.tool_choice = Some(ToolChoice::None)
    }),
    ("tool choice: required", |settings| {
        settings.tool_choice = Some(ToolChoice::Required)
    }),
    ("tool choice: a tool", |settings| {
        settings.tool_choice = Some(ToolChoice::Tool("weather".into()));
    }),
    ("one call", |settings| {
        settings.parallel_tool_calls = Some(false)
    }),
    ("web search", |settings| {
        settings.server_tools = vec![ServerTool::web_search()]
    }),
    ("web fetch", |settings| {
        settings.server_tools = vec![ServerTool::web_fetch()]
    }),
    ("code", |settings| {
        settings.server_tools = vec![ServerTool::code_execution()]
    }),
    ("effort: none", |settings| {
        settings.reasoning_effort = Some(ReasoningEffort::None)
    }),
    ("effort: minimal", |settings| {
        settings.reasoning_effort = Some(ReasoningEffort::Minimal);
    }),
    ("effort: high", |settings| {
        settings.reasoning_effort = Some(ReasoningEffort::High)
    }),
    ("effort: a budget", |settings| {
        settings.reasoning_effort = Some(ReasoningEffort::Other("2048".into()));
    }),
    ("format: JSON", |settings| {
        settings.response_format = Some(ResponseFormat::Json)
    }),
    ("format: text", |settings| {
        settings.response_format = Some(ResponseFormat::Text)
    }),
    ("format: a schema", |settings| {
        settings.response_format = Some(schema(false))
    }),
    ("format: a recursive schema", |settings| {
        settings.response_format = Some(schema(true))
    }),
    ("cache", |settings| {
        settings.prompt_cache = Some(PromptCache::new());
    }),
    ("cache for long", |settings| {
        let mut cache = PromptCache::new();
        cache.retention = Some(CacheRetention::Long);
        settings.prompt_cache = Some(cache);
    }),
];

fn schema(is_recursive: bool) -> ResponseFormat {
    let mut schema = json!({
        "type": "object",
        "properties": { "celsius": { "type": "number", "minimum": -90 } },
        "required": ["celsius"],
        "additionalProperties": false,
    });
    if is_recursive {
        schema["properties"]["next"] = json!({ "$ref": "#" });
    }
    ResponseFormat::JsonSchema {
        name: "weather".into(),
        schema,
        strict: !is_recursive,
    }
}

/// The conversations: a question, one with media, and a tool run with `answer`.
fn conversations(answer: &Message) -> Vec<Vec<Message>> {
    let image = Media::new(MediaSource::base64("image/png", "iVBORw0KGgo="));
    let linked = Media::new(MediaSource::url("https://example.com/a.png"));
    let document = Media::new(MediaSource::base64("application/pdf", "JVBERi0="));
    let audio = Media::new(MediaSource::base64("audio/wav", "UklGRg=="));
    let shows = |media: Part| {
        let parts = [Part::from_text("What is this?"), media];
        vec![Message::new(Role::User, parts)]
    };
    let results = answer.tool_calls().map(|call| {
        let seen = Part::image(MediaSource::base64("image/png", "iVBORw0KGgo="));
        Part::ToolResult(ToolResult::new(call, [Part::from_text("sunny"), seen]))
    });
    let results = Message::new(Role::Tool, results);
    let run = vec![
        Message::user("How is the weather?"),
        answer.clone(),
        results,
        Message::assistant("It is sunny."),
        Message::user("Thanks."),
    ];
    vec![
        vec![Message::user("Hello.")],
        shows(Part::image(image)),
        shows(Part::image(linked)),
        shows(Part::document(document)),
        shows(Part::audio(audio)),
        run,
    ]
}

/// Returns whether the package lacks what its API takes.
fn lacks(protocol: &str, setting: &str, conversation: &[Message]) -> bool {
    match (protocol, setting) {
        // A word of the caller's own, for other servers.
        ("chat" | "responses", "effort: a budget") => true,
        // Only newer models take no sampling.
        ("anthropic", "sampling") => true,
        // The package has the type of audio, and no message that may have it.
        ("responses", _) => conversation.iter().any(|message| {
            message
                .parts()
                .iter()
                .any(|part| matches!(part, Part::Audio(_)))
        }),
        _ => false,
    }
}

/// Appends the bodies of all requests of a protocol, a line each, and returns how many.
fn write<P: Protocol + Default>(
    name: &str,
    model: &str,
    answer: &Value,
    lines: &mut String,
) -> usize {
    let protocol = P::default();
    let mut count = 0;
    for conversation in conversations(&read(&protocol, answer)) {
        for (setting, set) in SETTINGS {
            for is_streamed in [false, true] {
                if lacks(name, setting, &conversation) {
                    continue;
                }
                let mut settings = Settings::default();
                set(&mut settings);
                let request = ModelRequest::new(conversation.clone()).with_settings(settings);
                let mut request = with_tools(request);
                request.add_instructions("Be brief.");
                let sink = is_streamed.then(|| channel(1).0);
                let request = request.with_delta_sender(sink);
                let call = Call::new(&request).with_model(model);
                let mut body = Vec::new();
                match protocol.encode(&call, &mut body) {
                    Ok(()) => {}
                    // The protocol has none of it, and says so.
                    Err(error) if error.kind() == ErrorKind::InvalidRequest => continue,
                    Err(error) => panic!("{name}, {setting}: {error}"),
                }
                let body: Value = serde_json::from_slice(&body).unwrap();
                let line = json!({ "protocol": name, "setting": setting, "body": body });
                lines.push_str(&format!("{line}\n"));
                count += 1;
            }
        }
    }
    count
}

/// Reads an answer of the protocol, with all that has to go back.
fn read<P: Protocol>(protocol: &P, answer: &Value) -> Message {
    let request = with_tools(ModelRequest::new([Message::user("How is the weather?")]));
    let mut decoder = protocol.decoder(&Call::new(&request));
    let mut pieces = Vec::new();
    let bytes = serde_json::to_vec(answer).unwrap();
    decoder.response(&bytes, &mut pieces).unwrap();
    let response = decoder.finish(Streamed::from_pieces(pieces).unwrap());
    let message = response.message().clone();
    assert_eq!(message.tool_calls().count(), 2, "{message:?}");
    message
}

fn chat_answer() -> Value {
    let call = |id: &str, name: &str, arguments: &str| {
        let function = json!({ "name": name, "arguments": arguments });
        json!({ "id": id, "type": "function", "function": function })
    };
    let calls = [
        call("call_1", "weather", "{\"city\":\"Oslo\"}"),
        call("call_2", "time", "{}"),
    ];
    let message = json!({ "role": "assistant", "content": "I look.", "tool_calls": calls });
    json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "tool_calls" }] })
}

fn responses_answer() -> Value {
    let text = json!({ "type": "output_text", "text": "I look.", "annotations": [] });
    json!({ "id": "resp_1", "status": "completed", "output": [
        { "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAA" },
        {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [text],
        },
        {
            "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather",
            "arguments": "{\"city\":\"Oslo\"}", "status": "completed",
        },
        {
            "type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "time",
            "arguments": "{}", "status": "completed",
        },
    ] })
}

fn messages_answer() -> Value {
    json!({ "id": "msg_1", "role": "assistant", "stop_reason": "tool_use", "content": [
        { "type": "thinking", "thinking": "I must look.", "signature": "EqQ" },
        { "type": "redacted_thinking", "data": "EmQ" },
        { "type": "text", "text": "I look." },
        { "type": "tool_use", "id": "toolu_1", "name": "weather", "input": { "city": "Oslo" } },
        { "type": "tool_use", "id": "toolu_2", "name": "time", "input": {} },
    ] })
}

fn gemini_answer() -> Value {
    let weather = json!({ "name": "weather", "args": { "city": "Oslo" } });
    let parts = json!([
        { "text": "I must look.", "thought": true },
        { "text": "I look." },
        { "functionCall": weather, "thoughtSignature": "EqQB" },
        { "functionCall": { "name": "time", "args": {} } },
    ]);
    let content = json!({ "role": "model", "parts": parts });
    json!({ "candidates": [{ "content": content, "finishReason": "STOP", "index": 0 }] })
}

fn interactions_answer() -> Value {
    let weather = json!({ "city": "Oslo" });
    json!({ "id": "v1_1", "status": "requires_action", "steps": [
        { "type": "thought", "signature": "EqQB", "summary": [{ "type": "text", "text": "hm" }] },
        { "type": "model_output", "content": [{ "type": "text", "text": "I look." }] },
        {
            "type": "function_call", "id": "call_1", "name": "weather", "arguments": weather,
        },
        { "type": "function_call", "id": "call_2", "name": "time", "arguments": {} },
    ] })
}

fn has_packages() -> bool {
    // Below the version of Python.
    let versions = fs::read_dir(servers().join(".venv/lib"));
    let version = versions.ok().and_then(|mut versions| versions.next()?.ok());
    let package = "site-packages/google/genai";
    let installed = version.map_or(servers().join(package), |version| {
        version.path().join(package)
    });
    is_installed("Python packages of the vendors", &installed, ".ci/servers")
}

/// Returns the problem of each body, empty if it has none.
fn problems(name: &str, lines: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.jsonl"));
    fs::write(&file, lines).unwrap();
    let output = Command::new(servers().join(".venv/bin/python"))
        .arg(servers().join("vendors.py"))
        .stdin(File::open(&file).unwrap())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let found = String::from_utf8(output.stdout).unwrap();
    found.lines().map(ToOwned::to_owned).collect()
}

#[test]
fn requests_are_valid_by_the_vendors_own_types() {
    if !has_packages() {
        return;
    }
    let mut lines = String::new();
    for count in [
        write::<Chat>("chat", "gpt-5", &chat_answer(), &mut lines),
        write::<Responses>("responses", "gpt-5", &responses_answer(), &mut lines),
        write::<Messages>(
            "anthropic",
            "claude-sonnet-4-6",
            &messages_answer(),
            &mut lines,
        ),
        write::<GenerateContent>("gemini", "gemini-3-pro", &gemini_answer(), &mut lines),
        write::<GenerateContent>("gemini", "gemini-2.5-flash", &gemini_answer(), &mut lines),
        write::<Interactions>(
            "interactions",
            "gemini-3-pro",
            &interactions_answer(),
            &mut lines,
        ),
    ] {
        assert!(count > 100, "{count}");
    }
    let found = problems("vendors", &lines);
    assert_eq!(found.len(), lines.lines().count());
    let wrong = lines
        .lines()
        .zip(found)
        .filter(|(_, problem)| !problem.is_empty());
    let wrong: Vec<_> = wrong
        .map(|(line, problem)| format!("{line}\n{problem}"))
        .collect();
    assert!(
        wrong.is_empty(),
        "{} bodies, such as\n{}",
        wrong.len(),
        wrong[0]
    );
}

/// Without the check that it makes, the test above would not be one.
#[test]
fn a_field_that_the_vendor_does_not_have_is_found() {
    if !has_packages() {
        return;
    }
    let text = json!({ "type": "text", "text": "hi", "unknown": 1 });
    let content = json!([text]);
    let lines = [
        json!({ "protocol": "chat", "body": {
            "model": "a", "messages": [{ "role": "user", "content": content }],
        } }),
        json!({ "protocol": "responses", "body": {
            "model": "a", "input": [{ "role": "user", "content": [
                { "type": "input_text", "text": "hi", "unknown": 1 },
            ] }],
        } }),
        json!({ "protocol": "anthropic", "body": {
            "model": "a", "max_tokens": 1, "messages": [{ "role": "user", "content": content }],
        } }),
        json!({ "protocol": "gemini", "body": {
            "contents": [{ "role": "user", "parts": [{ "text": "hi", "unknown": 1 }] }],
        } }),
        json!({ "protocol": "interactions", "body": {
            "model": "a", "input": [{ "type": "user_input", "content": content }],
        } }),
    ];
    let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
    let found = problems("unknown", &lines.join("\n"));
    assert_eq!(found.len(), 5);
    assert!(
        found.iter().all(|problem| problem.contains("unknown")),
        "{found:?}"
    );
}
