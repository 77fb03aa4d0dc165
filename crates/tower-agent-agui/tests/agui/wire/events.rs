//! Events as JSON, against the schema that the protocol publishes.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tower_agent_agui::{
    Content, ContentPart, EncryptedEntity, Event, EventKind, Interrupt, Message, MessageKind,
    PartSource, Patch, RunAgentInput, RunError, RunFinished, RunOutcome, RunStarted,
    SubagentOutcome, SubagentStarted, TextRole, TokenUsage, ToolCall,
};

fn schema() -> jsonschema::Validator {
    let schema = serde_json::from_str(include_str!("event.schema.json")).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

fn patch() -> Patch {
    serde_json::from_value(json!([
        { "op": "add", "path": "/a~1b", "value": null },
        { "op": "remove", "path": "/b" },
        { "op": "replace", "path": "", "value": 1 },
        { "op": "move", "from": "/c", "path": "/d" },
        { "op": "copy", "from": "/c", "path": "/d" },
        { "op": "test", "path": "/e", "value": [] },
    ]))
    .unwrap()
}

fn object() -> serde_json::Map<String, Value> {
    json!({ "steps": [1, 2] }).as_object().unwrap().clone()
}

fn messages() -> Vec<Message> {
    let mut assistant = Message::assistant("m3", "Let me see.");
    if let MessageKind::Assistant { tool_calls, .. } = &mut assistant.kind {
        let mut call = ToolCall::new("c1", "add", r#"{"a":1}"#);
        call.encrypted_value = Some("sealed".into());
        tool_calls.push(call);
    }
    assistant.name = Some("Ada".into());
    assistant.subagent_run_id = Some("s1".into());
    assistant.metadata = Some(object());
    let parts = vec![
        ContentPart::text("What is this?"),
        ContentPart::image(PartSource::Url {
            value: "https://x.test/a".into(),
            mime_type: None,
        }),
        ContentPart::image(PartSource::File {
            value: "f".into(),
            provider: Some("p".into()),
            mime_type: None,
        }),
        ContentPart::image(PartSource::Data {
            value: "QQ==".into(),
            mime_type: "image/png".into(),
        }),
    ];
    let content = || "Be brief.".to_owned();
    let activity_type = "PLAN".to_owned();
    vec![
        Message::new("m0", MessageKind::Developer { content: content() }),
        Message::new("m1", MessageKind::System { content: content() }),
        Message::user("m2", parts),
        assistant,
        Message::tool("m4", "c1", "3"),
        Message::new(
            "m5",
            MessageKind::Activity {
                activity_type,
                content: object(),
            },
        ),
        Message::new("m6", MessageKind::Reasoning { content: content() }),
        Message::new(
            "m7",
            MessageKind::Tool {
                tool_call_id: "c1".into(),
                content: Content::Parts(vec![ContentPart::text("no")]),
                error: Some("no".into()),
            },
        ),
    ]
}

fn finished(outcome: RunOutcome) -> Event {
    let usage = TokenUsage {
        model: Some("m".into()),
        input_tokens: Some(3),
        ..Default::default()
    };
    RunFinished::new("t", "r")
        .with_result(json!({ "sum": 3 }))
        .with_outcome(outcome)
        .with_usage([usage, tower_agent::Usage::new(1, 2).into()])
        .into()
}

/// Every kind of event, bare and with all it can say.
fn samples() -> Vec<Event> {
    let mut started = RunStarted::new("t", "r");
    started.protocol_version = Some("1.0".into());
    started.parent_run_id = Some("r0".into());
    started.input = Some(RunAgentInput::new("t", "r", messages()));
    let mut interrupt = Interrupt::new("i", "tool_call");
    interrupt.message = Some("May I?".into());
    interrupt.tool_call_id = Some("c".into());
    interrupt.response_schema = Some(object());
    interrupt.expires_at = Some("2030-01-01T00:00:00Z".into());
    interrupt.metadata = Some(object());
    interrupt.subagent_run_id = Some("s".into());
    let mut subagent = SubagentStarted::new("s", "helper");
    subagent.description = Some("helps".into());
    subagent.parent_subagent_run_id = Some("s0".into());
    subagent.parent_tool_call_id = Some("c".into());
    subagent.parent_message_id = Some("m".into());
    let suspended = Some(SubagentOutcome::Suspended {
        interrupt_ids: vec!["i".into()],
    });

    vec![
        Event::run_started("t", "r"),
        started.into(),
        Event::run_finished("t", "r"),
        finished(RunOutcome::Success {
            pending_tool_call_ids: vec!["c".into()],
        }),
        finished(RunOutcome::Interrupt {
            interrupts: vec![interrupt, Interrupt::new("j", "x:y")],
        }),
        finished(RunOutcome::Cancelled),
        Event::run_error("no"),
        RunError::new("no")
            .with_code("E")
            .with_usage([TokenUsage::default()])
            .into(),
        Event::step_started("s"),
        Event::step_finished("s"),
        Event::text_start("m"),
        EventKind::TextMessageStart {
            message_id: "m".into(),
            role: Some(TextRole::Developer),
            name: Some("Ada".into()),
        }
        .into(),
        Event::text_content("m", "line\nline"),
        Event::text_end("m"),
        EventKind::TextMessageChunk {
            message_id: None,
            role: None,
            name: None,
            delta: None,
        }
        .into(),
        EventKind::TextMessageChunk {
            message_id: Some("m".into()),
            role: Some(TextRole::User),
            name: Some("Ada".into()),
            delta: Some(String::new()),
        }
        .into(),
        Event::tool_call_start("c", "add", None),
        Event::tool_call_start("c", "add", Some("m".into())),
        Event::tool_call_args("c", "{"),
        Event::tool_call_end("c"),
        EventKind::ToolCallChunk {
            tool_call_id: Some("c".into()),
            tool_call_name: Some("add".into()),
            parent_message_id: Some("m".into()),
            delta: Some("{".into()),
        }
        .into(),
        Event::tool_call_result("m", "c", "3"),
        Event::tool_call_result("m", "c", vec![ContentPart::text("3")]),
        Event::state_snapshot(Value::Null),
        Event::state_snapshot(json!({ "a": null })),
        Event::state_delta(patch()),
        Event::messages_snapshot(messages()),
        Event::activity_snapshot("m", "PLAN", object()),
        EventKind::ActivitySnapshot {
            message_id: "m".into(),
            activity_type: "PLAN".into(),
            content: object(),
            replace: Some(false),
        }
        .into(),
        Event::activity_delta("m", "PLAN", patch()),
        Event::reasoning_start("m"),
        Event::reasoning_message_start("m"),
        Event::reasoning_message_content("m", "hm"),
        Event::reasoning_message_end("m"),
        EventKind::ReasoningMessageChunk {
            message_id: Some("m".into()),
            delta: None,
        }
        .into(),
        Event::reasoning_end("m"),
        Event::reasoning_encrypted_value(EncryptedEntity::ToolCall, "c", "sealed"),
        Event::reasoning_encrypted_value(EncryptedEntity::Message, "m", "sealed"),
        Event::subagent_started("s", "helper"),
        subagent.into(),
        Event::subagent_finished("s"),
        EventKind::SubagentFinished {
            subagent_run_id: "s".into(),
            result: Some(json!(3)),
            outcome: suspended,
        }
        .into(),
        Event::subagent_error("s", "no"),
        Event::raw(json!({ "type": "other" })),
        Event::custom("mine", Value::Null),
    ]
}

/// The same with all that every event may carry.
fn laden(event: Event) -> Event {
    event
        .with_timestamp(i64::MAX)
        .with_raw_event(json!({ "id": 7 }))
        .with_metadata(object())
        .with_subagent_run_id("s")
}

#[test]
fn every_event_is_of_the_published_schema_and_is_read_back() {
    let schema = schema();
    let mut kinds = BTreeSet::new();
    for event in samples()
        .into_iter()
        .flat_map(|event| [event.clone(), laden(event)])
    {
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(json["type"], event.kind.name());
        // The schema's first alternative that fits must be that of the type.
        schema
            .validate(&json)
            .unwrap_or_else(|error| panic!("{json}: {error}"));
        assert_eq!(serde_json::from_value::<Event>(json).unwrap(), event);
        kinds.insert(event.kind.name());
    }
    assert_eq!(kinds.len(), 31);
}

/// The schema lets properties pass that it does not know; a misspelt optional one would be lost.
#[test]
fn no_event_has_a_property_that_the_schema_does_not_name() {
    let schema: Value = serde_json::from_str(include_str!("event.schema.json")).unwrap();
    for event in samples()
        .into_iter()
        .flat_map(|event| [event.clone(), laden(event)])
    {
        // Of the whole run or conversation, they come from no agent within the agent; it may be
        // said all the same.
        let whole = [
            "RUN_STARTED",
            "RUN_FINISHED",
            "RUN_ERROR",
            "MESSAGES_SNAPSHOT",
        ];
        let mut json = serde_json::to_value(&event).unwrap();
        if whole.contains(&event.kind.name()) {
            json.as_object_mut().unwrap().remove("subagentRunId");
        }
        assert_eq!(stranger(&json, &schema), None, "{json}");
    }
    let stray = json!({ "type": "TEXT_MESSAGE_END", "messageId": "m", "colour": "red" });
    assert_eq!(stranger(&stray, &schema), Some("colour".to_owned()));
}

/// A property of the value that the schema does not name.
fn stranger(value: &Value, schema: &Value) -> Option<String> {
    if let Some(alternatives) = schema["anyOf"].as_array() {
        let one = alternatives
            .iter()
            .find(|schema| jsonschema::is_valid(schema, value));
        return stranger(value, one.unwrap());
    }
    match value {
        Value::Array(items) => items
            .iter()
            .find_map(|item| stranger(item, &schema["items"])),
        Value::Object(entries) => {
            // A schema that says nothing lets everything be.
            let known = schema["properties"].as_object()?;
            entries
                .iter()
                .find_map(|(name, value)| match known.get(name) {
                    Some(schema) => stranger(value, schema),
                    None => Some(name.clone()),
                })
        }
        _ => None,
    }
}

#[test]
fn nothing_optional_is_written_as_null() {
    for event in [
        Event::text_start("m"),
        Event::run_started("t", "r"),
        Event::from(RunFinished::new("t", "r").with_result(Value::Null)),
        Event::text_end("m").with_raw_event(Value::Null),
    ] {
        let json = serde_json::to_string(&event).unwrap();
        assert!(!json.contains("null"), "{json}");
    }
}

#[test]
fn numbers_stay_within_what_json_keeps_exact() {
    let usage = TokenUsage {
        input_tokens: Some(u64::MAX),
        ..TokenUsage::default()
    };
    let event = Event::from(RunError::new("no").with_usage([usage])).with_timestamp(i64::MIN);
    let json = serde_json::to_value(&event).unwrap();
    assert_eq!(json["usage"][0]["inputTokens"], 9_007_199_254_740_991_u64);
    assert_eq!(json["timestamp"], -9_007_199_254_740_991_i64);
}

#[test]
fn an_event_of_a_subagents_beginning_names_it_once() {
    let event = Event::subagent_started("s1", "helper").with_subagent_run_id("s2");
    let json = serde_json::to_string(&event.clone().with_timestamp(1)).unwrap();
    assert_eq!(json.matches("subagentRunId").count(), 1);
    assert_eq!(event.subagent_run_id().map(|id| &**id), Some("s1"));
}

#[test]
fn an_invalid_event_is_refused() {
    for json in [
        json!({}),
        json!({ "type": "TEXT_MESSAGE_FINISHED", "messageId": "m" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": "m" }),
        json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": 7, "delta": "" }),
        json!({ "type": "REASONING_MESSAGE_START", "messageId": "m", "role": "assistant" }),
        json!({ "type": "STATE_DELTA", "delta": [{ "op": "mend", "path": "/a" }] }),
        json!({ "type": "STATE_DELTA", "delta": [{ "op": "remove", "path": "a" }] }),
        json!({ "type": "SUBAGENT_STARTED", "name": "helper" }),
        json!({ "type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": { "type": "won" } }),
        json!({ "type": "ACTIVITY_SNAPSHOT", "messageId": "m", "activityType": "P", "content": "x" }),
        json!({ "type": "CUSTOM", "name": "n", "value": 1, "timestamp": "now" }),
    ] {
        assert!(
            serde_json::from_value::<Event>(json.clone()).is_err(),
            "{json}"
        );
    }
}

#[test]
fn a_property_that_is_not_known_is_ignored() {
    let json = json!({ "type": "TEXT_MESSAGE_END", "messageId": "m", "colour": "red" });
    assert_eq!(
        serde_json::from_value::<Event>(json).unwrap(),
        Event::text_end("m")
    );
}

#[test]
fn the_frequent_events_are_small() {
    assert!(size_of::<Event>() <= 104, "{}", size_of::<Event>());
}
