//! Parts that are no deltas: they are in the response, and the consumer sees what they show.

use futures::StreamExt;
use serde_json::json;
use tower_agent::message::{Part, ProviderData, Reasoning, Text, ToolCall};
use tower_agent::stream::{Delta, EventKind, Piece, channel, map_fn};
use tower_agent::{Agent, Message, ModelRequest, ModelResponse, Role};
use tower_agent_test::{ScriptedModel, Turn};

use super::read;

fn data(value: &str) -> ProviderData {
    let mut data = ProviderData::default();
    data.set("test", json!(value));
    data
}

fn reasoning(text: &str, provider: ProviderData) -> Part {
    let mut part = Part::reasoning(text);
    if let Part::Reasoning(Reasoning {
        provider: of_part, ..
    }) = &mut part
    {
        *of_part = provider;
    }
    part
}

fn call(id: &str) -> ToolCall {
    let mut call = ToolCall::new(id, "add", json!({ "a": 1 }));
    call.provider = data("of the call");
    call
}

#[tokio::test]
async fn reasoning_parts_stay_apart_with_their_data() {
    let (sink, events) = channel(64);
    let mut attempt = sink.open();
    for piece in [
        Delta::Reasoning("fi".into()).into(),
        Delta::Reasoning("rst".into()).into(),
        Piece::ReasoningEnd(data("1")),
        Delta::Reasoning("second".into()).into(),
        Piece::ReasoningEnd(data("2")),
        Piece::ReasoningEnd(data("hidden")),
        Part::from_text("Done.").into(),
        Delta::Text(" Really.".into()).into(),
    ] {
        attempt.send(piece).await.unwrap();
    }
    let message = attempt.finish().await.unwrap().message;
    drop(sink);

    let expected = [
        reasoning("first", data("1")),
        reasoning("second", data("2")),
        reasoning("", data("hidden")),
        Part::from_text("Done."),
        Part::from_text(" Really."),
    ];
    assert_eq!(message.parts(), expected);
    let kinds: Vec<_> = events.map(|event| event.kind).collect().await;
    let thoughts = kinds.iter().filter_map(|kind| match kind {
        EventKind::ReasoningDelta { text, .. } => Some(&**text),
        _ => None,
    });
    assert_eq!(thoughts.collect::<String>(), "firstsecond");
}

#[tokio::test]
async fn text_parts_stay_apart_with_their_data() {
    let (sink, events) = channel(64);
    let mut attempt = sink.open();
    for piece in [
        Delta::Text("fi".into()).into(),
        Delta::Text("rst".into()).into(),
        Piece::TextEnd(data("1")),
        Piece::TextEnd(ProviderData::default()),
        Delta::Text(" second".into()).into(),
        Piece::TextEnd(ProviderData::default()),
        Piece::TextEnd(data("3")),
        Delta::Reasoning("hm".into()).into(),
        Piece::TextEnd(ProviderData::default()),
        Delta::Reasoning("m".into()).into(),
    ] {
        attempt.send(piece).await.unwrap();
    }
    let message = attempt.finish().await.unwrap().message;
    drop(sink);

    let text = |text: &str, provider| {
        let mut part = Part::from_text(text);
        if let Part::Text(Text {
            provider: of_part, ..
        }) = &mut part
        {
            *of_part = provider;
        }
        part
    };
    let expected = [
        text("first", data("1")),
        text(" second", ProviderData::default()),
        text("", data("3")),
        Part::reasoning("hmm"),
    ];
    assert_eq!(message.parts(), expected);
    let kinds: Vec<_> = events.map(|event| event.kind).collect().await;
    let said = kinds.iter().filter_map(|kind| match kind {
        EventKind::TextDelta { text, .. } => Some(&**text),
        _ => None,
    });
    assert_eq!(said.collect::<String>(), "first second");
}

#[tokio::test]
async fn whole_tool_calls_are_seen_with_ids_of_their_own_and_keep_their_data() {
    let (sink, events) = channel(64);
    let mut attempt = sink.open();
    attempt.send(Part::from(call(""))).await.unwrap();
    attempt
        .send(Delta::ToolCall {
            index: 0,
            id: "a".into(),
            name: "sub".into(),
        })
        .await
        .unwrap();
    attempt.send(Part::from(call("a"))).await.unwrap();
    attempt
        .send(Delta::Arguments {
            index: 0,
            json: "{}".into(),
        })
        .await
        .unwrap();
    let message = attempt.finish().await.unwrap().message;
    drop(sink);

    let calls: Vec<_> = message.tool_calls().collect();
    let ids: Vec<_> = calls.iter().map(|call| &*call.id).collect();
    assert_eq!((ids.len(), ids[1]), (3, "a"));
    assert!(
        !ids[0].is_empty() && ids[0] != ids[2] && ids[2] != "a",
        "{ids:?}"
    );
    assert_eq!(calls[0].provider, data("of the call"));
    assert_eq!(calls[1].arguments.as_str(), "{}");

    let kinds: Vec<_> = events.map(|event| event.kind).collect().await;
    let message = message.id().unwrap().clone();
    let seen = |place: usize| -> String {
        let wanted = format!("{message}-t{place}");
        let of_call = kinds.iter().filter_map(|kind| match kind {
            EventKind::ToolCallDelta { id, json } if **id == *wanted => Some(&**json),
            _ => None,
        });
        of_call.collect()
    };
    let seen = [seen(0), seen(1), seen(2)];
    assert_eq!(seen, [r#"{"a":1}"#, "{}", r#"{"a":1}"#]);
}

#[tokio::test]
async fn mappers_see_the_text_of_a_whole_part() {
    let model = ScriptedModel::new([Turn::response(ModelResponse::new(Message::new(
        Role::Assistant,
        [Part::Text({
            let mut text = tower_agent::message::Text::default();
            text.text = "secret".into();
            text.provider = data("of the text");
            text
        })],
    )))]);
    let hide = |request: &mut ModelRequest| {
        request.map_deltas(|| {
            map_fn(|delta| match delta {
                Delta::Text(text) => Some(Delta::Text(text.replace("secret", ".."))),
                other => Some(other),
            })
        });
    };
    let agent = Agent::builder(model)
        .on_model(tower_agent::callback::before_model(hide))
        .build()
        .unwrap();

    let (events, response) = read(agent.stream("?")).await;

    let first = events.iter().find_map(|event| match &event.kind {
        EventKind::TextDelta { text, .. } => Some(&**text),
        _ => None,
    });
    assert_eq!(first, Some(".."));
    let response = response.unwrap();
    let last = response.messages().last().unwrap().clone();
    let Part::Text(text) = &last.parts()[0] else {
        panic!("{last:?}")
    };
    assert_eq!(
        (&*text.text, &text.provider),
        ("secret", &data("of the text"))
    );
}
