//! The input that a front end posts.

use serde_json::{Value, json};
use tower_agent_agui::{Content, ContentPart, MessageKind, ResumeStatus, RunAgentInput};

fn read(input: &Value) -> RunAgentInput {
    RunAgentInput::from_json(input.to_string().as_bytes()).unwrap()
}

/// Where it is wrong.
fn wrong(input: &Value) -> String {
    let error = RunAgentInput::from_json(input.to_string().as_bytes()).unwrap_err();
    error.path().to_owned()
}

fn with_messages(messages: Value) -> Value {
    json!({ "threadId": "t", "runId": "r", "messages": messages })
}

#[test]
fn the_body_of_the_typescript_client_is_read_whole() {
    let body = json!({
        "threadId": "t1",
        "runId": "r1",
        "protocolVersion": "1.0",
        "parentRunId": "r0",
        "state": { "count": 1 },
        "messages": [
            { "id": "m0", "role": "developer", "content": "Be brief.", "name": "ops" },
            { "id": "m1", "role": "system", "content": "Be kind." },
            { "id": "m2", "role": "user", "content": "Hello" },
            { "id": "m3", "role": "user", "content": [
                { "type": "text", "text": "What is this?", "id": "p1" },
                { "type": "image", "source": { "type": "url", "value": "https://x.test/a" } },
                { "type": "audio", "source": { "type": "data", "value": "QQ==", "mimeType": "audio/wav" } },
                { "type": "video", "source": { "type": "file", "value": "f", "provider": "p" } },
                { "type": "document", "source": { "type": "url", "value": "u", "mimeType": "application/pdf" },
                  "metadata": { "title": "T" } },
            ] },
            { "id": "m4", "role": "reasoning", "content": "hm", "encryptedValue": "sealed" },
            { "id": "m5", "role": "assistant", "toolCalls": [
                { "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{\"a\":1}" } },
            ] },
            { "id": "m6", "role": "tool", "content": "3", "toolCallId": "c1" },
            { "id": "m7", "role": "tool", "content": [{ "type": "text", "text": "3" }],
              "toolCallId": "c1", "error": "late" },
            { "id": "m8", "role": "activity", "activityType": "PLAN", "content": { "steps": [] } },
            { "id": "m9", "role": "assistant", "content": "3", "subagentRunId": "s1",
              "metadata": { "model": "m" } },
        ],
        "tools": [
            { "name": "confirm", "description": "Asks.", "parameters": { "type": "object" } },
            { "name": "now", "description": "The time." },
        ],
        "context": [{ "description": "Where", "value": "here" }],
        "forwardedProps": { "beta": true },
        "resume": [
            { "interruptId": "i1", "status": "resolved", "payload": { "approved": true } },
            { "interruptId": "i2", "status": "cancelled" },
        ],
    });
    let input = read(&body);
    // Nothing is lost on the way.
    assert_eq!(serde_json::to_value(&input).unwrap(), body);
    assert_eq!(input.resume[1].status, ResumeStatus::Cancelled);
    let MessageKind::User {
        content: Content::Parts(parts),
    } = &input.messages[3].kind
    else {
        panic!("{:?}", input.messages[3]);
    };
    assert!(matches!(parts[4], ContentPart::Document(_)));
}

#[test]
fn an_answer_with_a_key_twice_is_refused() {
    let body = r#"{"threadId":"t","runId":"r","messages":[],"resume":[
        {"interruptId":"i","status":"resolved","payload":{"approved":true,"approved":false}}]}"#;
    let error = RunAgentInput::from_json(body.as_bytes()).unwrap_err();
    assert!(error.path().starts_with("resume[0].payload"), "{error}");
    assert!(error.message().contains("twice"), "{error}");
}

#[test]
fn optional_fields_can_be_absent_or_null() {
    let least = read(&with_messages(json!([])));
    assert!(least.tools.is_empty() && least.context.is_empty() && least.resume.is_empty());
    assert_eq!(least.state, None);
    let nulls = json!({
        "threadId": "t", "runId": "r", "messages": [], "state": null, "tools": null,
        "context": null, "forwardedProps": null, "resume": null, "parentRunId": null,
    });
    assert_eq!(read(&nulls), least);
}

#[test]
fn a_property_that_is_not_known_is_ignored_anywhere() {
    let body = json!({
        "threadId": "t", "runId": "r", "colour": "red",
        "messages": [{ "id": "m", "role": "user", "colour": "red",
            "content": [{ "type": "text", "text": "Hello", "colour": "red" }] }],
        "tools": [{ "name": "now", "description": "", "colour": "red" }],
    });
    assert_eq!(read(&body).messages.len(), 1);
}

#[test]
fn an_error_says_where() {
    let cases = [
        (json!({ "runId": "r", "messages": [] }), "."),
        (
            json!({ "threadId": 7, "runId": "r", "messages": [] }),
            "threadId",
        ),
        (
            with_messages(json!([{ "id": "m", "role": "wizard", "content": "" }])),
            "messages[0].role",
        ),
        (
            with_messages(json!([{ "role": "user", "content": "" }])),
            "messages[0]",
        ),
        (
            with_messages(json!([{ "id": "m", "role": "user" }])),
            "messages[0]",
        ),
        (
            with_messages(json!([{ "id": "m", "role": "user", "content": 7 }])),
            "messages[0].content",
        ),
        (
            with_messages(json!([{ "id": "m", "role": "system", "content": [] }])),
            "messages[0]",
        ),
        (
            with_messages(json!([{ "id": "m", "role": "tool", "content": "" }])),
            "messages[0]",
        ),
        (
            with_messages(json!([{ "id": "m", "role": "user", "content": [{ "type": "smell" }] }])),
            "messages[0].content[0].type",
        ),
        (
            with_messages(json!([{ "id": "m", "role": "user",
                "content": [{ "type": "image", "source": { "type": "data", "value": "" } }] }])),
            "messages[0].content[0].source",
        ),
        (
            with_messages(json!([
                { "id": "m0", "role": "user", "content": "" },
                { "id": "m1", "role": "assistant", "toolCalls": [
                    { "id": "c", "type": "function", "function": { "name": "add", "arguments": {} } },
                ] },
            ])),
            "messages[1].toolCalls[0].function.arguments",
        ),
        (
            json!({ "threadId": "t", "runId": "r", "messages": [],
                "resume": [{ "interruptId": "i", "status": "maybe" }] }),
            "resume[0].status",
        ),
    ];
    for (input, place) in cases {
        assert_eq!(wrong(&input), place, "{input}");
    }
}

#[test]
fn an_error_says_why() {
    let input = with_messages(json!([{ "id": "m", "role": "wizard", "content": "" }]));
    let error = RunAgentInput::from_json(input.to_string().as_bytes()).unwrap_err();
    assert!(error.message().contains("wizard"), "{error}");
    assert!(error.message().contains("assistant"), "{error}");
    assert!(error.to_string().contains("messages[0].role"), "{error}");
}

#[test]
fn invalid_json_or_a_second_value_is_refused() {
    for body in [
        "",
        "{",
        "[]",
        "null",
        r#"{"threadId":"t","runId":"r","messages":[]} more"#,
    ] {
        assert!(RunAgentInput::from_json(body.as_bytes()).is_err(), "{body}");
    }
}
