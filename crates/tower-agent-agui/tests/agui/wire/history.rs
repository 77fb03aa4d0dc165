//! The front end's messages as ours, and back.

use serde_json::json;
use tower_agent::message::{Media, MediaSource, Messages, ProviderData, ToolCall, ToolResult};
use tower_agent::{Part, Role};
use tower_agent_agui::{
    ContentPart, MediaPart, Message, MessageKind, PartSource, ToolCall as Asked, conversation,
};

fn of(kind: MessageKind) -> Message {
    Message::new("x", kind)
}

fn reasoning(text: &str) -> Message {
    of(MessageKind::Reasoning {
        content: text.into(),
    })
}

fn asking(text: Option<&str>, calls: &[(&str, &str, &str)]) -> Message {
    let tool_calls = calls
        .iter()
        .map(|(id, name, args)| Asked::new(*id, *name, *args));
    let tool_calls = tool_calls.collect();
    of(MessageKind::Assistant {
        content: text.map(str::to_owned),
        tool_calls,
    })
}

fn ours(messages: &[Message]) -> Messages {
    conversation::read(messages).unwrap()
}

fn theirs(messages: impl Into<Messages>) -> Vec<Message> {
    conversation::write(&messages.into(), || "x".into())
}

#[test]
fn text_keeps_its_role() {
    let read = ours(&[
        of(MessageKind::Developer {
            content: "a".into(),
        }),
        of(MessageKind::System {
            content: "b".into(),
        }),
        Message::user("x", "c"),
        Message::assistant("x", "d"),
    ]);
    let read: Vec<_> = read
        .iter()
        .map(|message| (message.role(), message.text()))
        .collect();
    let said = |role, text: &str| (role, text.to_owned());
    let roles = [Role::System, Role::System, Role::User, Role::Assistant];
    assert_eq!(
        read,
        [0, 1, 2, 3].map(|at| said(roles[at], ["a", "b", "c", "d"][at]))
    );
}

fn media(source: PartSource) -> MediaPart {
    MediaPart {
        source,
        id: None,
        metadata: None,
    }
}

#[test]
fn parts_become_parts() {
    let read = ours(&[Message::user(
        "x",
        vec![
            ContentPart::text("What is this?"),
            ContentPart::image(PartSource::Url {
                value: "u".into(),
                mime_type: None,
            }),
            ContentPart::image(PartSource::Data {
                value: "QQ==".into(),
                mime_type: "image/png".into(),
            }),
            ContentPart::Audio(media(PartSource::Url {
                value: "a".into(),
                mime_type: Some("audio/wav".into()),
            })),
            ContentPart::Document(MediaPart {
                metadata: Some(json!({ "filename": "report.pdf" })),
                ..media(PartSource::Url {
                    value: "d".into(),
                    mime_type: None,
                })
            }),
        ],
    )]);
    let parts = [
        Part::from_text("What is this?"),
        Part::image(MediaSource::url("u")),
        Part::image(MediaSource::base64("image/png", "QQ==")),
        Part::audio(MediaSource::url("a").with_media_type("audio/wav")),
        Part::document(Media::new(MediaSource::url("d")).with_name("report.pdf")),
    ];
    assert_eq!(read[0].parts(), parts);
}

#[test]
fn content_that_no_model_call_can_contain_is_refused_with_its_path() {
    let url = || PartSource::Url {
        value: "u".into(),
        mime_type: None,
    };
    let file = || PartSource::File {
        value: "f".into(),
        provider: None,
        mime_type: None,
    };
    for (part, what) in [
        (ContentPart::Video(media(url())), "video"),
        (ContentPart::image(file()), "file"),
        (ContentPart::Audio(media(file())), "file"),
        (ContentPart::Document(media(file())), "file"),
    ] {
        let parts = vec![ContentPart::text("this"), part];
        let messages = [Message::user("x", "first"), Message::user("x", parts)];
        let error = conversation::read(&messages).unwrap_err();
        assert_eq!(error.path(), "messages[1].content[1]");
        assert!(error.message().contains(what), "{error}");
    }
}

#[test]
fn calls_and_their_answers_find_one_another() {
    let failed = of(MessageKind::Tool {
        tool_call_id: "c2".into(),
        content: "".into(),
        error: Some("timed out".into()),
    });
    let read = ours(&[
        asking(
            Some("Let me see."),
            &[("c1", "add", r#"{"a":1}"#), ("c2", "sub", "")],
        ),
        Message::tool("x", "c1", "3"),
        failed,
    ]);
    let calls: Vec<_> = read[0].tool_calls().cloned().collect();
    let (c1, c2) = (
        ToolCall::new("c1", "add", json!({ "a": 1 })),
        ToolCall::new("c2", "sub", json!({})),
    );
    assert_eq!(calls, [c1.clone(), c2.clone()]);
    assert_eq!(read[0].text(), "Let me see.");
    let results: Vec<_> = read
        .iter()
        .flat_map(|message| message.tool_results())
        .cloned()
        .collect();
    let answers = [
        ToolResult::new(&c1, [Part::from_text("3")]),
        ToolResult::new(&c2, [Part::from_text("timed out")]).failed(),
    ];
    assert_eq!(results, answers);
}

#[test]
fn an_answer_to_no_call_is_refused() {
    let messages = [Message::user("x", "Hello"), Message::tool("x", "c9", "3")];
    let error = conversation::read(&messages).unwrap_err();
    assert_eq!(error.path(), "messages[1].toolCallId");
    assert!(error.message().contains("c9"));
}

#[test]
fn thoughts_go_before_their_answer_and_not_past_the_user() {
    let read = ours(&[
        reasoning("lost"),
        Message::user("x", "Hello"),
        reasoning("a"),
        reasoning("b"),
        Message::assistant("x", "Hi"),
        Message::assistant("x", "Ho"),
    ]);
    assert_eq!(read.len(), 3);
    assert_eq!(
        read[1].parts(),
        [
            Part::reasoning("a"),
            Part::reasoning("b"),
            Part::from_text("Hi")
        ]
    );
    assert_eq!(read[2].parts(), [Part::from_text("Ho")]);
}

/// A model may think once more after it has spoken.
#[test]
fn thoughts_named_after_the_message_before_belong_to_it() {
    let named = |id: &str, text: &str| {
        Message::new(
            id,
            MessageKind::Reasoning {
                content: text.into(),
            },
        )
    };
    let mut asked = asking(Some("Let me see."), &[("c1", "add", "{}")]);
    asked.id = "r-0".into();
    let read = ours(&[
        named("r-0-r0", "a"),
        asked,
        Message::tool("x", "c1", "3"),
        named("r-0-r1", "b"),
        named("r-1-r0", "c"),
        Message::assistant("r-1", "3."),
        named("r-1-r1", "d"),
        Message::user("x", "Thanks"),
    ]);
    let thoughts = |at: usize| {
        let thoughts = read[at]
            .parts()
            .iter()
            .filter(|part| matches!(part, Part::Reasoning(_)));
        thoughts.cloned().collect::<Vec<_>>()
    };
    assert_eq!(read.len(), 4);
    assert_eq!(thoughts(0), [Part::reasoning("a"), Part::reasoning("b")]);
    assert_eq!(thoughts(2), [Part::reasoning("c"), Part::reasoning("d")]);
}

#[test]
fn activities_are_left_out() {
    let activity_type = "PLAN".into();
    let content = serde_json::Map::new();
    assert!(
        ours(&[of(MessageKind::Activity {
            activity_type,
            content
        })])
        .is_empty()
    );
}

#[test]
fn our_history_comes_back_as_it_was() {
    let mut sealed = ProviderData::default();
    sealed.set("anthropic", json!({ "signature": "EqQ" }));
    let mut thought = Part::reasoning("hm");
    if let Part::Reasoning(thought) = &mut thought {
        thought.provider = sealed.clone();
    }
    let mut call = ToolCall::new("c1", "add", json!({ "a": 1 }));
    call.provider = sealed;
    let history = Messages::from([
        tower_agent::Message::system("Be brief."),
        tower_agent::Message::user("Hello")
            .with_part(Part::image(MediaSource::url("u")))
            .with_part(Part::audio(MediaSource::base64("audio/wav", "QQ==")))
            .with_part(Part::document(
                Media::new(MediaSource::url("d")).with_name("report.pdf"),
            )),
        tower_agent::Message::new(
            Role::Assistant,
            [thought, Part::from_text("Let me see."), call.clone().into()],
        ),
        tower_agent::Message::tool(ToolResult::new(&call, [Part::from_text("no")]).failed()),
        tower_agent::Message::tool(ToolResult::new(
            &call,
            [Part::image(MediaSource::base64("image/png", "Q"))],
        )),
        tower_agent::Message::assistant("3"),
    ]);
    assert_eq!(ours(&theirs(history.clone())), history);
}

#[test]
fn a_sealed_value_of_another_server_comes_back_as_it_was() {
    let mut message = reasoning("hm");
    message.encrypted_value = Some("gAAAA==".into());
    let messages = [message, Message::assistant("x", "Hi")];
    assert_eq!(theirs(ours(&messages)), messages);
}

#[test]
fn every_message_gets_a_name_of_its_own_in_order() {
    let mut next = 0;
    let history = Messages::from([
        tower_agent::Message::user("a"),
        tower_agent::Message::new(
            Role::Assistant,
            [Part::reasoning("b"), Part::from_text("c")],
        ),
    ]);
    let written = conversation::write(&history, || {
        next += 1;
        format!("m{next}").into()
    });
    let names: Vec<_> = written.iter().map(|message| &*message.id).collect();
    assert_eq!(names, ["m1", "m2", "m3"]);
}
