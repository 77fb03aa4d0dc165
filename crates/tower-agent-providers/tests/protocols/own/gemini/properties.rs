//! Every conversation becomes contents that the protocol accepts.

use proptest::prelude::*;
use serde_json::{Value, json};
use test_support::property::cases;
use tower_agent::message::{MediaSource, ToolCall, ToolResult};
use tower_agent::{Message, ModelRequest, Part, Role};
use tower_agent_providers::Protocol;
use tower_agent_providers::gemini::GenerateContent;
use tower_agent_providers::protocol::Call;

fn part(number: usize) -> impl Strategy<Value = Part> {
    let text = format!("text {number}");
    let call = ToolCall::new(format!("call {number}"), "look", json!({}));
    let result = |parts: Vec<Part>| Part::ToolResult(ToolResult::new(&call, parts));
    let image = Part::image(MediaSource::base64("image/png", "iVBO"));
    let seen = vec![Part::from_text("seen"), image.clone()];
    prop_oneof![
        4 => Just(Part::from_text(text)),
        1 => Just(Part::from_text("")),
        1 => Just(Part::reasoning("Hm.")),
        1 => Just(image),
        2 => Just(result(vec![Part::from_text("seen")])),
        1 => Just(result(seen)),
        2 => Just(Part::ToolCall(call)),
    ]
}

fn message(number: usize) -> impl Strategy<Value = Message> {
    let role = prop_oneof![
        1 => Just(Role::System),
        3 => Just(Role::User),
        3 => Just(Role::Assistant),
        4 => Just(Role::Tool),
    ];
    let parts = prop::collection::vec(part(number), 0..4);
    (role, parts).prop_map(|(role, parts)| {
        // Nobody but the model calls tools, and a system message is text.
        let may_hold = |part: &Part| match part {
            Part::ToolCall(_) => role == Role::Assistant,
            Part::ToolResult(_) => role == Role::Tool || role == Role::User,
            Part::Text(_) => true,
            _ => role != Role::System,
        };
        Message::new(role, parts.into_iter().filter(may_hold))
    })
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    (0_usize..9).prop_flat_map(|length| (0..length).map(message).collect::<Vec<_>>())
}

/// A turn of calls, whose results come in any order, with other messages between them.
fn turn() -> impl Strategy<Value = (usize, Vec<Message>)> {
    let events = (1_usize..5).prop_flat_map(|calls| {
        let results = (0..calls).map(|number| {
            let shows = any::<bool>();
            shows.prop_map(move |shows| {
                let call = ToolCall::new(format!("call {number}"), "look", json!({}));
                let image = Part::image(MediaSource::base64("image/png", "iVBO"));
                let parts = [Part::from_text("seen")]
                    .into_iter()
                    .chain(shows.then_some(image));
                Message::tool(ToolResult::new(&call, parts))
            })
        });
        let notes = prop::collection::vec(Just(Message::user("note")), 0..3);
        (Just(calls), results.collect::<Vec<_>>(), notes)
    });
    events.prop_flat_map(|(calls, results, notes)| {
        let messages = results.into_iter().chain(notes).collect::<Vec<_>>();
        (Just(calls), Just(messages).prop_shuffle())
    })
}

fn body(messages: &[Message]) -> String {
    let request = ModelRequest::new(messages.to_vec());
    let mut body = Vec::new();
    let call = Call::new(&request).with_model("gemini-2.5-flash");
    GenerateContent::default().encode(&call, &mut body).unwrap();
    String::from_utf8(body).unwrap()
}

/// Returns the role of a content, and whether it has results.
fn kind(content: &Value) -> (String, bool) {
    let parts = content["parts"].as_array().unwrap();
    let results = parts
        .iter()
        .filter(|part| part.get("functionResponse").is_some())
        .count();
    assert!(
        results == 0 || results == parts.len(),
        "results are alone: {content}"
    );
    assert!(!parts.is_empty(), "{content}");
    (content["role"].as_str().unwrap().to_owned(), results > 0)
}

fn texts(parts: &[Part]) -> impl Iterator<Item = &str> {
    parts
        .iter()
        .filter_map(Part::as_text)
        .filter(|text| !text.is_empty())
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn contents_are_grouped_and_nothing_is_lost(messages in conversation()) {
        let body: Value = serde_json::from_str(&body(&messages)).unwrap();
        let contents = body["contents"].as_array().unwrap();
        let kinds: Vec<_> = contents.iter().map(kind).collect();
        for pair in kinds.windows(2) {
            prop_assert_ne!(&pair[0], &pair[1]);
        }

        let parts = || contents.iter().flat_map(|content| content["parts"].as_array().unwrap());
        let count = |field: &str| parts().filter(|part| part.get(field).is_some()).count();
        let calls: usize = messages.iter().map(|message| message.tool_calls().count()).sum();
        let results: usize = messages.iter().map(|message| message.tool_results().count()).sum();
        prop_assert_eq!(count("functionCall"), calls);
        prop_assert_eq!(count("functionResponse"), results);
        let is_image = |part: &&Part| matches!(part, Part::Image(_));
        let images: usize = messages.iter().flat_map(Message::parts).map(|part| match part {
            Part::ToolResult(result) => result.parts.iter().filter(is_image).count(),
            part => usize::from(is_image(&part)),
        }).sum();
        prop_assert_eq!(count("inlineData"), images);

        // Texts of users and of the model keep their order.
        let said = messages.iter().filter(|message| matches!(message.role(), Role::User | Role::Assistant));
        let said: Vec<_> = said.flat_map(|message| texts(message.parts())).collect();
        let all: Vec<_> = parts().filter_map(|part| part["text"].as_str()).collect();
        let mut all = all.into_iter();
        prop_assert!(said.iter().all(|text| all.any(|sent| sent == *text)), "{body}");
    }

    #[test]
    fn results_directly_follow_their_calls((calls, messages) in turn()) {
        let said = (0..calls).map(|number| {
            Part::from(ToolCall::new(format!("call {number}"), "look", json!({})))
        });
        let said = Message::new(Role::Assistant, said);
        let begin = [Message::user("Look."), said];
        let conversation: Vec<_> = begin.into_iter().chain(messages.clone()).collect();
        let body: Value = serde_json::from_str(&body(&conversation)).unwrap();
        let contents = body["contents"].as_array().unwrap();
        let answered = contents[2]["parts"].as_array().unwrap().iter();
        let answered: Vec<_> = answered.map(|part| &part["functionResponse"]["id"]).collect();
        let results = messages.iter().flat_map(Message::tool_results);
        let expected: Vec<_> = results.map(|result| &*result.call_id).collect();
        prop_assert_eq!(answered, expected);
        let rest = messages.iter().any(|message| {
            message.role() == Role::User
                || message.tool_results().any(|result| result.parts.len() > 1)
        });
        prop_assert_eq!(contents.len(), 3 + usize::from(rest));
    }

    /// The bytes of a message depend on nothing after it.
    #[test]
    fn a_longer_conversation_begins_with_the_bytes_of_a_shorter_one(messages in conversation()) {
        let whole = body(&messages);
        for length in 0..messages.len() {
            let start = body(&messages[..length]);
            // The last content may go on, and what results show may still come.
            let contents: Value = serde_json::from_str(&start).unwrap();
            let contents = contents["contents"].as_array().unwrap();
            let closed = contents.len().saturating_sub(2);
            let later: Value = serde_json::from_str(&whole).unwrap();
            prop_assert_eq!(&contents[..closed], &later["contents"].as_array().unwrap()[..closed]);
        }
    }
}
