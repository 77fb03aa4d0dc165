//! The front end's messages, kept in step.

use serde_json::{Map, Value, json};
use tower_agent_agui::{
    ContentPart, Conversation, EncryptedEntity, Event, EventKind, Message, MessageKind,
    RunAgentInput, RunStarted, TextRole,
};

use crate::allocations;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// The messages after these events, as JSON.
fn after(messages: &[Message], events: impl IntoIterator<Item = Event>) -> Value {
    let mut conversation = Conversation::new(messages.iter().cloned());
    events
        .into_iter()
        .for_each(|event| conversation.apply(&event));
    serde_json::to_value(conversation.messages()).unwrap()
}

fn said(id: &str, text: &str) -> [Event; 3] {
    [
        Event::text_start(id),
        Event::text_content(id, text),
        Event::text_end(id),
    ]
}

fn thought(id: &str, text: &str) -> [Event; 3] {
    [
        Event::reasoning_message_start(id),
        Event::reasoning_message_content(id, text),
        Event::reasoning_message_end(id),
    ]
}

fn snapshot_of(event: &Event) -> Value {
    let EventKind::MessagesSnapshot { messages } = &event.kind else {
        panic!("{event:?}")
    };
    serde_json::to_value(messages).unwrap()
}

#[test]
fn streamed_text_becomes_a_message_of_its_role_and_agent() {
    let start = |id: &str, role| {
        Event::from(EventKind::TextMessageStart {
            message_id: id.into(),
            role: Some(role),
            name: Some("Ada".into()),
        })
    };
    let events = [
        start("m1", TextRole::User).with_subagent_run_id("s"),
        Event::text_content("m1", "a"),
        start("m2", TextRole::Developer),
        Event::text_content("m2", "b"),
        Event::text_content("m1", "c"),
        Event::text_start("m3"),
    ];
    let expected = json!([
        { "id": "m1", "role": "user", "content": "ac", "name": "Ada", "subagentRunId": "s" },
        { "id": "m2", "role": "developer", "content": "b", "name": "Ada" },
        { "id": "m3", "role": "assistant", "content": "" },
    ]);
    assert_eq!(after(&[], events), expected);
}

#[test]
fn text_of_a_known_message_is_added_to_it() {
    let messages = [Message::assistant("m1", "Hel")];
    let expected = json!([{ "id": "m1", "role": "assistant", "content": "Hello" }]);
    assert_eq!(after(&messages, said("m1", "lo")), expected);
    // The client keeps no parts beside streamed text.
    let messages = [Message::user("m1", vec![ContentPart::text("Hel")])];
    let expected = json!([{ "id": "m1", "role": "user", "content": "lo" }]);
    assert_eq!(after(&messages, said("m1", "lo")), expected);
}

#[test]
fn a_tool_call_goes_to_the_message_that_asks_or_to_one_of_its_own() {
    let events = [
        Event::text_start("m1"),
        Event::tool_call_start("c1", "add", Some("m1".into())),
        Event::tool_call_args("c1", r#"{"a""#),
        Event::tool_call_args("c1", ":1}"),
        Event::tool_call_start("c2", "add", Some("m2".into())).with_subagent_run_id("s"),
        Event::tool_call_start("c3", "add", None),
        Event::tool_call_start("c4", "add", Some("u".into())),
        // It has come before: only its name may be new.
        Event::tool_call_start("c1", "sum", None),
    ];
    let call = |id: &str, name: &str, arguments: &str| json!([{ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } }]);
    let expected = json!([
        { "id": "u", "role": "user", "content": "Hello" },
        { "id": "m1", "role": "assistant", "content": "", "toolCalls": call("c1", "sum", r#"{"a":1}"#) },
        { "id": "m2", "role": "assistant", "toolCalls": call("c2", "add", ""), "subagentRunId": "s" },
        { "id": "c3", "role": "assistant", "toolCalls": call("c3", "add", "") },
        { "id": "c4", "role": "assistant", "toolCalls": call("c4", "add", "") },
    ]);
    assert_eq!(after(&[Message::user("u", "Hello")], events), expected);
}

#[test]
fn an_answer_stands_behind_its_call_and_the_answers_before() {
    let events = [
        Event::tool_call_start("c1", "add", Some("m1".into())),
        Event::tool_call_start("c2", "add", Some("m1".into())),
    ];
    let late = said("m2", "So");
    let results =
        ["c1", "c2", "c9"].map(|call| Event::tool_call_result(format!("r-{call}"), call, "3"));
    let all = events.into_iter().chain(late).chain(results);
    let messages = after(&[], all);
    let order: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["id"].clone())
        .collect();
    assert_eq!(order, ["m1", "r-c1", "r-c2", "m2", "r-c9"]);
    assert_eq!(
        messages[1],
        json!({ "id": "r-c1", "role": "tool", "toolCallId": "c1", "content": "3" })
    );
}

#[test]
fn metadata_of_events_is_added_to_their_message() {
    let with = |event: Event, value| event.with_metadata(object(value));
    let events = [
        with(Event::text_start("m1"), json!({ "a": 1, "b": { "c": 1 } })),
        with(Event::text_end("m1"), json!({ "b": 2 })),
        with(
            Event::tool_call_start("c1", "add", Some("m1".into())),
            json!({ "d": 1 }),
        ),
        with(Event::step_started("s"), json!({ "lost": true })),
        Event::reasoning_encrypted_value(EncryptedEntity::ToolCall, "c1", "sealed"),
        Event::reasoning_encrypted_value(EncryptedEntity::Message, "m1", "closed"),
    ];
    let messages = after(&[], events);
    assert_eq!(messages[0]["metadata"], json!({ "a": 1, "b": 2 }));
    assert_eq!(messages[0]["encryptedValue"], "closed");
    assert_eq!(messages[0]["toolCalls"][0]["metadata"], json!({ "d": 1 }));
    assert_eq!(messages[0]["toolCalls"][0]["encryptedValue"], "sealed");
}

#[test]
fn an_activity_is_shown_replaced_and_changed() {
    let patch = |value| serde_json::from_value(value).unwrap();
    let show = |content, replace| {
        Event::from(EventKind::ActivitySnapshot {
            message_id: "m".into(),
            activity_type: "PLAN".into(),
            content: object(content),
            replace,
        })
    };
    let fits = json!([{ "op": "add", "path": "/b", "value": 2 }]);
    let does_not = json!([{ "op": "remove", "path": "/x" }, { "op": "remove", "path": "/b" }]);
    let events = [
        show(json!({ "old": 1 }), None),
        show(json!({ "a": 1 }), None),
        show(json!({ "ignored": 1 }), Some(false)),
        Event::activity_delta("m", "DONE", patch(fits)),
        Event::activity_delta("m", "OTHER", patch(does_not)),
        Event::text_content("m", "text never goes there"),
    ];
    let content = json!({ "a": 1, "b": 2 });
    let expected =
        json!([{ "id": "m", "role": "activity", "activityType": "DONE", "content": content }]);
    assert_eq!(after(&[], events), expected);
}

#[test]
fn a_repeated_input_adds_its_missing_messages() {
    let mut started = RunStarted::new("t", "r");
    let repeated = [Message::user("m1", "other"), Message::user("m2", "new")];
    started.input = Some(RunAgentInput::new("t", "r", repeated));
    let messages = after(&[Message::user("m1", "Hello")], [started.into()]);
    assert_eq!(
        (&messages[0]["content"], &messages[1]["content"]),
        (&json!("Hello"), &json!("new"))
    );
}

#[test]
fn a_snapshot_updates_in_place_drops_what_it_lacks_and_appends() {
    let activity = MessageKind::Activity {
        activity_type: "P".into(),
        content: Map::new(),
    };
    let before = [
        Message::user("m1", "Hello"),
        Message::new("a1", activity),
        Message::assistant("m2", "gone"),
        Message::new(
            "r1",
            MessageKind::Reasoning {
                content: "kept".into(),
            },
        ),
        Message::assistant("m3", "old"),
    ];
    let new = ["m3", "m1", "m4"].map(|id| Message::assistant(id, "new"));
    let messages = after(&before, [Event::messages_snapshot(new.to_vec())]);
    let order: Vec<_> = messages
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["id"].clone())
        .collect();
    assert_eq!(order, ["m1", "a1", "r1", "m3", "m4"]);
    assert_eq!(messages[3]["content"], "new");
}

#[test]
fn a_discarded_answer_goes_with_its_calls_answers_and_the_rest_stays() {
    let mut conversation = Conversation::new([Message::user("u", "Hello")]);
    let kept = said("m1", "kept");
    let discarded = said("m2", "discarded").into_iter().chain([
        Event::tool_call_start("c1", "add", Some("m2".into())),
        Event::tool_call_end("c1"),
        Event::tool_call_result("r1", "c1", "3"),
    ]);
    let activity = Event::activity_snapshot("a", "PLAN", Map::new());
    for event in kept.into_iter().chain(discarded).chain([activity]) {
        conversation.apply(&event);
    }
    let event = conversation.snapshot_without(&["m2".into()]);
    let expected = json!([
        { "id": "u", "role": "user", "content": "Hello" },
        { "id": "m1", "role": "assistant", "content": "kept" },
    ]);
    assert_eq!(snapshot_of(&event), expected);
    conversation.apply(&event);
    let left: Vec<_> = conversation
        .messages()
        .iter()
        .map(|message| &*message.id)
        .collect();
    assert_eq!(left, ["u", "m1", "a"]);
}

/// A front end keeps its reasoning where a snapshot has none.
#[test]
fn discarded_thoughts_go_and_the_last_of_them_is_emptied() {
    let mut conversation = Conversation::new([]);
    thought("r1", "first")
        .into_iter()
        .for_each(|event| conversation.apply(&event));
    thought("r2", "second")
        .into_iter()
        .for_each(|event| conversation.apply(&event));
    conversation.apply(&conversation.snapshot_without(&["r2".into()]));
    let first = Message::new(
        "r1",
        MessageKind::Reasoning {
            content: "first".into(),
        },
    );
    assert_eq!(conversation.messages(), [first]);
    conversation.apply(&conversation.snapshot_without(&["r1".into()]));
    let empty = Message::new(
        "r1",
        MessageKind::Reasoning {
            content: String::new(),
        },
    );
    assert_eq!(conversation.messages(), [empty]);
}

#[test]
fn a_snapshot_of_all_changes_nothing() {
    let mut conversation = Conversation::new([Message::user("u", "Hello")]);
    said("m1", "Hi")
        .into_iter()
        .for_each(|event| conversation.apply(&event));
    let before = conversation.messages().to_vec();
    conversation.apply(&conversation.snapshot());
    assert_eq!(conversation.messages(), before);
}

#[test]
fn a_piece_of_text_costs_no_more_in_a_long_conversation() {
    let history = (0..1000).map(|at| Message::user(format!("u{at}"), "Hello"));
    let mut conversation = Conversation::new(history);
    conversation.apply(&Event::text_start("m"));
    let pieces = vec![Event::text_content("m", "x"); 1000];
    let used = allocations::of(|| pieces.iter().for_each(|piece| conversation.apply(piece)));
    // The text grows by doubling; nothing else is allocated.
    assert!(used.count <= 10, "{used:?}");
}
