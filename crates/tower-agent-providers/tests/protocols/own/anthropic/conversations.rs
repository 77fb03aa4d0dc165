//! How a conversation is sent.

use proptest::collection::vec;
use proptest::test_runner::TestRunner;
use proptest::{prop_assert, prop_assert_eq, prop_assert_ne, strategy::Strategy};
use serde_json::{Value, json};
use test_support::property::cases;
use tower_agent::message::{MediaSource, ProviderData, Reasoning, ToolCall, ToolResult};
use tower_agent::{ErrorKind, Message, ModelRequest, Part, Role};
use tower_agent_providers::anthropic::Messages;

use super::fixtures::{body, messages, text_block, tool_use, try_body};

fn data(provider: &str, value: Value) -> ProviderData {
    let mut data = ProviderData::default();
    data.set(provider, value);
    data
}

fn asks(ids: &[&str]) -> Message {
    let calls = ids
        .iter()
        .map(|id| ToolCall::new(*id, "add", json!({ "a": 1 })).into());
    Message::new(Role::Assistant, calls)
}

fn result(id: &str, parts: impl IntoIterator<Item = Part>) -> ToolResult {
    ToolResult::new(&ToolCall::new(id, "add", json!({})), parts)
}

fn answers(id: &str) -> Message {
    Message::tool(result(id, [Part::from_text("3")]))
}

fn tool_result(id: &str) -> Value {
    json!({ "type": "tool_result", "tool_use_id": id, "content": [text_block("3")] })
}

#[test]
fn a_full_conversation() {
    let mut request = ModelRequest::new([
        Message::system("Be brief."),
        Message::user("1 + 2?"),
        Message::assistant("Let me see.")
            .with_part(ToolCall::new("a", "add", json!({ "a": 1 })).into()),
        answers("a"),
        Message::assistant("3"),
        Message::system("Be kind."),
        Message::user("Thanks."),
    ]);
    request.set_instructions(Some("You add.".into()));
    let sent = body(&request);
    assert_eq!(
        sent["system"],
        json!([text_block("You add."), text_block("Be brief.")])
    );
    let expected = json!([
        { "role": "user", "content": [text_block("1 + 2?")] },
        { "role": "assistant", "content": [
            text_block("Let me see."), tool_use("a", "add", json!({ "a": 1 })),
        ] },
        { "role": "user", "content": [tool_result("a")] },
        { "role": "assistant", "content": [text_block("3")] },
        { "role": "user", "content": [text_block("Thanks.")] },
        { "role": "system", "content": [text_block("Be kind.")] },
    ]);
    assert_eq!(sent["messages"], expected);
    assert_eq!(sent["model"], "claude-test");
    assert_eq!(sent["max_tokens"], 16_384);
    let fields: Vec<_> = sent.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["max_tokens", "messages", "model", "system"]);
}

#[test]
fn results_of_one_turn_are_one_message_before_anything_else() {
    let sent = messages([
        Message::user("Both."),
        asks(&["a", "b"]),
        answers("a"),
        answers("b"),
        Message::user("And hurry."),
    ]);
    let content = json!([tool_result("a"), tool_result("b"), text_block("And hurry.")]);
    assert_eq!(sent[2], json!({ "role": "user", "content": content }));
    assert_eq!(sent.as_array().unwrap().len(), 3);
}

#[test]
fn results_stand_before_other_content_of_the_same_message() {
    let mixed = Message::user("So?").with_part(result("a", [Part::from_text("3")]).into());
    let sent = messages([Message::user("Go."), asks(&["a"]), mixed]);
    assert_eq!(
        sent[2]["content"],
        json!([tool_result("a"), text_block("So?")])
    );
}

#[test]
fn other_content_of_tool_messages_follows_the_last_result() {
    let words = Message::new(Role::Tool, [Part::from_text("Late: 4")]);
    let begin = [
        Message::user("Go."),
        asks(&["a", "b"]),
        answers("a"),
        words,
        answers("b"),
    ];
    let content = json!([tool_result("a"), tool_result("b"), text_block("Late: 4")]);
    assert_eq!(messages(begin.clone())[2]["content"], content);
    let sent = messages(begin.into_iter().chain([Message::assistant("Done.")]));
    assert_eq!(sent[2]["content"], content);
    assert_eq!(sent[3]["content"], json!([text_block("Done.")]));
}

#[test]
fn a_blank_message_between_results_parts_nothing() {
    let words = Message::new(Role::Tool, [Part::from_text("Late: 4")]);
    let blank = Message::user(" ");
    let sent = messages([
        Message::user("Go."),
        asks(&["a", "b"]),
        words,
        answers("a"),
        blank,
        answers("b"),
    ]);
    let content = json!([tool_result("a"), tool_result("b"), text_block("Late: 4")]);
    assert_eq!(sent[2]["content"], content);
}

#[test]
fn a_later_system_message_stands_directly_before_the_answer() {
    let system = |text: &str| json!({ "role": "system", "content": [text_block(text)] });
    let begin = [
        Message::user("Go."),
        asks(&["a"]),
        Message::system("Be quick."),
        answers("a"),
        Message::system("Be kind."),
        Message::assistant(""),
        Message::user("And?"),
    ];
    let sent = messages(begin.clone());
    assert_eq!(
        sent[2]["content"],
        json!([tool_result("a"), text_block("And?")])
    );
    let both = json!([text_block("Be quick."), text_block("Be kind.")]);
    assert_eq!(sent[3], json!({ "role": "system", "content": both }));
    assert_eq!(sent.as_array().unwrap().len(), 4);
    // It stays there, and the next one follows the next message of the user.
    let more = [
        Message::assistant("Done."),
        Message::system("Be brief."),
        Message::user("Now?"),
    ];
    let longer = messages(begin.into_iter().chain(more));
    assert_eq!(
        longer.as_array().unwrap()[..4],
        sent.as_array().unwrap()[..]
    );
    assert_eq!(longer[4]["role"], "assistant");
    assert_eq!(longer[5]["content"], json!([text_block("Now?")]));
    assert_eq!(longer[6], system("Be brief."));
}

#[test]
fn consecutive_messages_of_one_role_are_merged() {
    let sent = messages([
        Message::user("a"),
        Message::user("b"),
        Message::assistant("c"),
        Message::assistant("d"),
        Message::user("e"),
    ]);
    let expected = json!([
        { "role": "user", "content": [text_block("a"), text_block("b")] },
        { "role": "assistant", "content": [text_block("c"), text_block("d")] },
        { "role": "user", "content": [text_block("e")] },
    ]);
    assert_eq!(sent, expected);
}

#[test]
fn blank_text_is_never_sent() {
    let sent = messages([
        Message::user("")
            .with_part(Part::from_text("a"))
            .with_part(Part::from_text(" \n")),
        Message::assistant("\n\n"),
        Message::new(Role::Assistant, []),
        Message::user("b"),
        Message::system("  "),
        Message::assistant("").with_part(ToolCall::new("a", "add", json!({})).into()),
        Message::tool(result("a", [Part::from_text("")])),
    ]);
    let expected = json!([
        { "role": "user", "content": [text_block("a"), text_block("b")] },
        { "role": "assistant", "content": [tool_use("a", "add", json!({}))] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a" }] },
    ]);
    assert_eq!(sent, expected);
    let mut request = ModelRequest::new([Message::system(" "), Message::user("a")]);
    request.set_instructions(Some("".into()));
    assert_eq!(body(&request).get("system"), None);
}

#[test]
fn a_failure_is_marked_and_has_content() {
    let failed = |parts: Vec<Part>| {
        let message = Message::tool(result("a", parts).failed());
        messages([Message::user("Go."), asks(&["a"]), message])[2]["content"][0].take()
    };
    let expected = json!({ "type": "tool_result", "tool_use_id": "a", "is_error": true,
        "content": [text_block("no disk")] });
    assert_eq!(failed(vec![Part::from_text("no disk")]), expected);
    for nothing in [vec![], vec![Part::from_text(" ")]] {
        assert_eq!(failed(nothing)["content"], "The tool failed.");
    }
}

#[test]
fn arguments_are_always_an_object() {
    let input = |arguments: &str| {
        let call = ToolCall::from_text("a", "add", arguments);
        let asks = Message::new(Role::Assistant, [call.into()]);
        messages([Message::user("Go."), asks])[1]["content"][0]["input"].take()
    };
    assert_eq!(input(""), json!({}));
    assert_eq!(input(" {\"a\": 1}\n"), json!({ "a": 1 }));
    for other in ["{\"a\":", "7", "[1]", "null", "\"a\""] {
        assert_eq!(input(other), json!({ "INVALID_JSON": other }), "{other}");
    }
    // Half a character, which the provider would refuse.
    let half = input("{\"a\":\"\\ud800\"}");
    assert_eq!(half, json!({ "a": "\u{fffd}" }));
}

#[test]
fn arguments_are_sent_as_the_model_wrote_them() {
    let text = r#"{"z": 100000000000000000000000000001,  "a": 1.50}"#;
    let asks = Message::new(
        Role::Assistant,
        [ToolCall::from_text("a", "add", text).into()],
    );
    let request = ModelRequest::new([Message::user("Go."), asks]);
    let mut body = Vec::new();
    use tower_agent_providers::protocol::{Call, Protocol};
    Messages::default()
        .encode(&Call::new(&request).with_model("m"), &mut body)
        .unwrap();
    assert!(
        String::from_utf8(body)
            .unwrap()
            .contains(&format!("\"input\":{text}}}"))
    );
}

#[test]
fn ids_of_other_providers_are_rewritten_alike_in_call_and_result() {
    let sent = messages([
        Message::user("Go."),
        asks(&["functions.add:0", "functions_add:0", "call_1'"]),
        answers("functions.add:0"),
        answers("functions_add:0"),
        answers("call_1'"),
    ]);
    let ids = |index: usize, field: &str| -> Vec<String> {
        let blocks = sent[index]["content"].as_array().unwrap().iter();
        blocks
            .map(|block| block[field].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        ids(1, "id"),
        [
            "functions_add_0_0281487c23866cd1",
            "functions_add_0_ff7de0eab3308bec",
            "call_1__5f50be9c000a914a"
        ]
    );
    assert_eq!(ids(2, "tool_use_id"), ids(1, "id"));
}

#[test]
fn the_first_message_must_be_the_users() {
    let request = ModelRequest::new([Message::assistant("Hello!"), Message::user("Hi.")]);
    let error = try_body(&Messages::default(), &request).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidRequest);
    assert_eq!(
        error.message(),
        "the protocol requires a first message of the user"
    );
    // A message without content is not the first.
    let sent = messages([Message::assistant(""), Message::user("Hi.")]);
    assert_eq!(
        sent,
        json!([{ "role": "user", "content": [text_block("Hi.")] }])
    );
}

#[test]
fn a_system_message_contains_only_text() {
    let picture = Part::image(MediaSource::url("https://example.com/a.png"));
    let odd = |first: Vec<Message>| {
        let system = Message::system("Look:").with_part(picture.clone());
        let request = ModelRequest::new(first.into_iter().chain([system]).collect::<Vec<_>>());
        try_body(&Messages::default(), &request)
            .unwrap_err()
            .message()
            .to_owned()
    };
    assert_eq!(
        odd(vec![]),
        "messages[0].parts[1]: a system message contains only text"
    );
    let hi = Message::user("Hi.");
    assert_eq!(
        odd(vec![hi]),
        "messages[1].parts[1]: a system message contains only text"
    );
}

#[test]
fn data_of_this_provider_is_added_and_that_of_others_is_not() {
    let mut call = ToolCall::new("a", "add", json!({}));
    call.provider = data("anthropic", json!({ "caller": { "type": "direct" } }));
    call.provider.set("openai", json!({ "extra_content": 1 }));
    let block = json!({ "type": "search_result", "title": "T" });
    let mut thought = Reasoning::default();
    thought.provider = data("openai", json!({ "x": 1 }));
    let sent = messages([
        Message::user("Go.").with_part(Part::Provider(data("openai", json!({ "type": "x" })))),
        Message::new(
            Role::Assistant,
            [Part::Reasoning(thought), Part::reasoning("hm"), call.into()],
        ),
        Message::tool(result(
            "a",
            [Part::Provider(data("anthropic", block.clone()))],
        )),
    ]);
    let mut called = tool_use("a", "add", json!({}));
    called["caller"] = json!({ "type": "direct" });
    let expected = json!([
        { "role": "user", "content": [text_block("Go.")] },
        { "role": "assistant", "content": [called] },
        { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "a", "content": [block] },
        ] },
    ]);
    assert_eq!(sent, expected);
}

/// The messages between two answers: those before the question, the calls of the answer before, and
/// the messages between their results.
#[derive(Clone, Debug)]
struct Exchange {
    before: Vec<u8>,
    calls: u8,
    between: Vec<u8>,
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let few = || vec(0..6_u8, 0..4);
    (few(), 0..4_u8, few()).prop_map(|(before, calls, between)| Exchange {
        before,
        calls,
        between,
    })
}

/// A message of a kind that says `text`, if it says anything.
fn odd(kind: u8, text: String, role: Role) -> Message {
    match kind {
        0 => Message::user(" "),
        1 => Message::new(Role::Assistant, []),
        2 => Message::system("\n"),
        3 => Message::system(text),
        4 => Message::new(Role::Assistant, [Part::reasoning("of another provider")]),
        _ => Message::new(role, [Part::from_text(text)]),
    }
}

/// The messages, and how many texts they say.
fn conversation(exchanges: &[Exchange]) -> (Vec<Message>, usize) {
    let mut messages = vec![Message::user("start")];
    let mut said = 0;
    for (turn, exchange) in exchanges.iter().enumerate() {
        let mut odd = |kind: u8, role: Role, messages: &mut Vec<Message>| {
            messages.push(odd(kind, format!("<{said}>"), role));
            said += usize::from(kind == 3 || kind > 4);
        };
        for &kind in &exchange.before {
            odd(kind, Role::User, &mut messages);
        }
        let ids: Vec<_> = (0..exchange.calls)
            .map(|call| format!("call_{turn}_{call}"))
            .collect();
        messages.push(asks(&ids.iter().map(|id| &**id).collect::<Vec<_>>()));
        let mut between = exchange.between.iter();
        for id in &ids {
            if let Some(&kind) = between.next() {
                odd(kind, Role::Tool, &mut messages);
            }
            messages.push(answers(id));
        }
        if ids.is_empty() {
            messages.push(Message::user("next"));
        }
    }
    (messages, said)
}

#[test]
fn every_conversation_is_accepted() {
    let mut runner = TestRunner::new(cases(300));
    let result = runner.run(&vec(exchange(), 0..5), |exchanges| {
        let (conversation, said) = conversation(&exchanges);
        let sent = messages(conversation);
        let sent = sent.as_array().unwrap();
        let role = |at: usize| {
            sent.get(at)
                .map(|message| message["role"].as_str().unwrap())
        };
        let blocks = |at: usize| sent[at]["content"].as_array().unwrap();
        prop_assert_eq!(role(0), Some("user"));
        for at in 0..sent.len() {
            prop_assert!(!blocks(at).is_empty());
            prop_assert_ne!(role(at), role(at + 1));
            if role(at) == Some("system") {
                prop_assert_eq!(role(at - 1), Some("user"));
                prop_assert_ne!(role(at + 1), Some("user"));
            }
            let of = |at: usize, kind: &str, field: &str| -> Vec<_> {
                let of_kind = blocks(at).iter().take_while(|block| block["type"] == kind);
                of_kind.map(|block| block[field].clone()).collect()
            };
            let calls = of(at, "tool_use", "id");
            if !calls.is_empty() {
                prop_assert_eq!(calls, of(at + 1, "tool_result", "tool_use_id"));
            }
        }
        let text = Value::from(sent.clone()).to_string();
        for number in 0..said {
            prop_assert_eq!(text.matches(&format!("<{number}>")).count(), 1);
        }
        Ok(())
    });
    result.unwrap();
}
