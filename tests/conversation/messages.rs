//! A list of messages: saved, shared between clones, changed.

use proptest::prelude::*;
use serde_json::json;
use tower_agent::message::{self, Media, MediaSource, Messages, ToolCall, ToolResult};
use tower_agent::{Message, Part};

use test_support::property::cases;

#[test]
fn a_conversation_survives_being_saved() {
    let mut thought = message::Reasoning::default();
    thought.text = "Sunny, I think.".into();
    thought
        .provider
        .set("anthropic", json!({ "signature": "EqQ" }));
    let mut call = ToolCall::new("call_1", "weather", json!({ "city": "Zürich" }));
    call.provider
        .set("google", json!({ "thought_signature": "abc" }));
    let mut opaque = tower_agent::message::ProviderData::default();
    opaque.set("openai", json!({ "type": "web_search_call" }));
    let answer = ToolResult::new(
        &call,
        [
            Part::from_text("21 °C"),
            Part::image(MediaSource::base64("image/png", "iVB")),
        ],
    );

    let report = MediaSource::url("https://example.com/report").with_media_type("text/csv");
    let report = Media::new(report).with_name("report.csv");

    let conversation = Messages::from([
        Message::system("Be brief."),
        Message::user("Weather?")
            .with_part(Part::image(MediaSource::url("https://example.com/sky.png")))
            .with_part(Part::audio(MediaSource::base64("audio/wav", "UklGRg==")))
            .with_part(Part::document(MediaSource::file("file-1")))
            .with_part(Part::document(report.clone())),
        Message::new(
            tower_agent::Role::Assistant,
            [
                Part::Reasoning(thought),
                Part::from(call),
                Part::Provider(opaque),
            ],
        ),
        Message::tool(answer.failed()),
    ]);

    let saved = serde_json::to_string(&conversation).unwrap();
    let restored: Messages = serde_json::from_str(&saved).unwrap();
    assert_eq!(restored, conversation);
    assert!(restored[3].tool_results().next().unwrap().is_error);
    let Part::Image(image) = &restored[1].parts()[1] else {
        panic!("{restored:?}")
    };
    assert_eq!(
        image.source,
        MediaSource::url("https://example.com/sky.png")
    );
    assert_eq!(restored[1].parts()[4], Part::document(report));
}

#[test]
fn a_shared_history_stays_as_it_is() {
    let shared: Messages = (0..1000).map(|n| Message::user(n.to_string())).collect();
    let mut mine = shared.clone();
    mine.push(Message::assistant("mine"));
    *mine.get_mut(0).unwrap() = Message::user("changed");

    assert_eq!((shared.len(), shared[0].text()), (1000, "0".to_owned()));
    assert_eq!(
        (mine.len(), mine[0].text(), mine[1000].text()),
        (1001, "changed".into(), "mine".into())
    );
    let tail: Vec<_> = mine.range(998).rev().map(Message::text).collect();
    assert_eq!(tail, ["mine", "999", "998"]);
    assert_eq!(mine.range(5000).len(), 0);
}

/// One change of a list; numbers are taken modulo its length.
#[derive(Clone, Debug)]
enum Edit {
    Push(usize),
    Pop,
    Truncate(usize),
    Change(usize),
    /// Another clone is kept, or dropped.
    Share,
    Release,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        8 => (1_usize..40).prop_map(Edit::Push),
        4 => Just(Edit::Pop),
        2 => any::<usize>().prop_map(Edit::Truncate),
        2 => any::<usize>().prop_map(Edit::Change),
        3 => Just(Edit::Share),
        1 => Just(Edit::Release),
    ];
    proptest::collection::vec(edit, 0..40)
}

fn same(list: &Messages, model: &[Message], from: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        (list.len(), list.is_empty()),
        (model.len(), model.is_empty())
    );
    prop_assert_eq!(list.last(), model.last());
    prop_assert!(list.iter().eq(model));
    prop_assert!(list.iter().rev().eq(model.iter().rev()));
    let from = from % (model.len() + 1);
    let (mut ours, mut theirs) = (list.range(from), model[from..].iter());
    // From both ends, until they meet.
    while let Some(message) = theirs.next() {
        prop_assert_eq!(ours.len(), theirs.len() + 1);
        prop_assert_eq!(ours.next(), Some(message));
        prop_assert_eq!(ours.next_back(), theirs.next_back());
    }
    prop_assert_eq!((ours.next(), ours.next_back(), ours.len()), (None, None, 0));
    prop_assert!(list.get(from) == model.get(from) && list.get(model.len()).is_none());
    prop_assert_eq!(list, &Messages::from(model.to_vec()));
    Ok(())
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_shared_list_of_messages_behaves_like_a_list(edits in edits(), from: usize) {
        let (mut list, mut model, mut shared) = (Messages::new(), Vec::new(), Vec::new());
        for (step, edit) in edits.into_iter().enumerate() {
            let said = |n: usize| Message::user(format!("{step}.{n}"));
            match edit {
                Edit::Push(count) => {
                    model.extend((0..count).map(said));
                    list.extend((0..count).map(said));
                }
                Edit::Pop => prop_assert_eq!(list.pop(), model.pop()),
                Edit::Truncate(length) => {
                    let length = length % (model.len() + 2);
                    model.truncate(length);
                    list.truncate(length);
                }
                Edit::Change(at) => {
                    let at = at % (model.len() + 1);
                    prop_assert_eq!(list.get_mut(at).is_some(), at < model.len());
                    if at < model.len() {
                        *list.get_mut(at).unwrap() = said(at);
                        model[at] = said(at);
                    }
                }
                Edit::Share => shared.push((list.clone(), model.clone())),
                Edit::Release => drop(shared.pop()),
            }
            same(&list, &model, from)?;
        }
        for (list, model) in &shared {
            same(list, model, from)?;
        }
        let saved = serde_json::to_string(&list).unwrap();
        prop_assert_eq!(serde_json::from_str::<Messages>(&saved).unwrap(), list);
    }
}
