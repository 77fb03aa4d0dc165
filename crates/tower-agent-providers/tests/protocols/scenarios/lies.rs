//! Servers that lie, and models that invent.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::message::{ToolResult, Usage};
use tower_agent::{Agent, ErrorKind, Message, ModelRequest, Part, Tool};
use tower_agent_providers::Protocol;
use tower_agent_providers::protocol::Call;

use super::{both, read};
use crate::answer::{Answer, Said, call, said, text};
use crate::column::{Column, Sent, events_of, model, streamed};
use crate::server::{Reply, Server, json as reply, whole};

/// A tool that writes down what it is called with.
fn look() -> (Tool, Arc<Mutex<Vec<Value>>>) {
    let seen: Arc<Mutex<Vec<Value>>> = Arc::default();
    let log = seen.clone();
    let tool = Tool::function("look", "Looks.", move |arguments: Value| {
        log.lock().unwrap().push(arguments);
        "a cat"
    });
    (tool, seen)
}

/// A run whose model gives these answers. Returns the last request that the server received, and
/// what the tool was called with.
async fn run<C: Column>(answers: &[Answer], is_streamed: bool) -> (Value, Vec<Value>) {
    let replies = answers.iter().map(|answer| -> Reply {
        if is_streamed {
            streamed::<C>(answer)
        } else {
            reply(200, &C::body(answer))
        }
    });
    let server = Server::start(replies).await;
    let (look, seen) = look();
    let agent = Agent::builder(model::<C>(&server))
        .tool(look)
        .build()
        .unwrap();
    let response = if is_streamed {
        agent.stream("What do you see?").response().await
    } else {
        agent.run("What do you see?").await
    };
    assert_eq!(response.unwrap().text(), "Done.");
    let last = server.seen().pop().unwrap();
    let seen = seen.lock().unwrap().clone();
    (last.body, seen)
}

fn done() -> Answer {
    Answer::new([text(&["Done."])])
}

/// Returns the ids of the calls, each of which has a result of its own.
#[track_caller]
fn calls(sent: &[Sent]) -> Vec<String> {
    let calls: Vec<_> = sent
        .iter()
        .filter_map(|sent| match sent {
            Sent::Call(id) => Some(id.clone()),
            _ => None,
        })
        .collect();
    let results = sent.iter().filter_map(|sent| match sent {
        Sent::Result(id) => Some(id.clone()),
        _ => None,
    });
    assert_eq!(calls, results.collect::<Vec<_>>(), "{sent:?}");
    calls
}

pub(crate) async fn two_calls_with_one_id<C: Column>() {
    let twice = Answer::new([
        call("same", "look", &["{\"at\":1}"]),
        call("same", "look", &["{\"at\":", "2}"]),
    ]);
    for is_streamed in [false, true] {
        let (last, seen) = run::<C>(&[twice.clone(), done()], is_streamed).await;
        assert_eq!(seen, [json!({ "at": 1 }), json!({ "at": 2 })]);
        let ids = calls(&C::sent_back(&last));
        assert_eq!(ids.len(), 2);
        assert!(ids[0] != ids[1] || !C::HAS_CALL_IDS, "{ids:?}");
    }
}

pub(crate) async fn the_id_of_a_former_turn<C: Column>() {
    let turn = |at: &str| Answer::new([call("same", "look", &[&format!("{{\"at\":{at}}}")])]);
    for is_streamed in [false, true] {
        let answers = [turn("1"), turn("2"), turn("3"), done()];
        let (last, seen) = run::<C>(&answers, is_streamed).await;
        assert_eq!(
            seen,
            [json!({ "at": 1 }), json!({ "at": 2 }), json!({ "at": 3 })]
        );
        let mut sent = C::sent_back(&last);
        assert_eq!(calls(&sent).len(), 3);
        sent.retain(|sent| !matches!(sent, Sent::Text(_)));
        if C::HAS_CALL_IDS {
            let ids: HashSet<_> = calls(&sent).into_iter().collect();
            assert_eq!(ids.len(), 3, "some servers refuse an id that stands twice");
        }
        // Each result stands after its call.
        for pair in sent.chunks(2) {
            assert!(matches!(pair, [Sent::Call(_), Sent::Result(_)]), "{sent:?}");
        }
    }
}

/// Whoever believes the end does not read what follows it.
pub(crate) async fn deltas_after_the_end<C: Column>() {
    let answer = Answer::new([text(&["a", "b"])]);
    let late = Answer::new([text(&["too late"]), call("call_9", "look", &["{}"])]);
    let events = C::events(&answer).into_iter().chain(C::events(&late));
    let read = read::<C>(events_of::<C>(events)).await;
    assert_eq!(read.texts(), ["a", "b"]);
    assert_eq!(
        said(read.response.unwrap().message()),
        [Said::Text("ab".into())]
    );
}

/// Replaces the numbers that count something.
fn recount(value: &mut Value, number: &Value) -> usize {
    let mut replaced = 0;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.to_ascii_lowercase();
                if value.is_number() && (name.contains("token") || name.contains("count")) {
                    *value = number.clone();
                    replaced += 1;
                } else {
                    replaced += recount(value, number)
                }
            }
        }
        Value::Array(values) => {
            replaced += values
                .iter_mut()
                .map(|value| recount(value, number))
                .sum::<usize>();
        }
        _ => {}
    }
    replaced
}

pub(crate) async fn counts_that_cannot_be<C: Column>() {
    let answer = Answer::new([text(&["a", "b"])]);
    let odd = [
        json!(-1),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(1e300),
        json!(0.5),
        json!("many"),
        json!([3]),
        json!({ "n": 3 }),
        json!(true),
    ];
    for number in odd {
        let mut body = C::body(&answer);
        assert!(recount(&mut body, &number) > 0, "{body}");
        let events = C::events(&answer).into_iter().map(|event| {
            let Some(start) = event.find('{') else {
                return event;
            };
            let (data, end) = event[start..].split_once('\n').unwrap();
            let mut data: Value = serde_json::from_str(data).unwrap();
            recount(&mut data, &number);
            format!("{}{data}\n{end}", &event[..start])
        });
        let streamed = read::<C>(events_of::<C>(events)).await.response;
        let server = Server::start([reply(200, &body)]).await;
        let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
        for response in [plain, streamed] {
            // The answer has been paid for, and a retry would pay for it again.
            let response = response.unwrap_or_else(|error| panic!("{number}: {error}"));
            assert_eq!(response.text(), "ab", "{number}");
            let usage = response.usage();
            if !number.is_u64() {
                assert_eq!(
                    usage,
                    Usage::default(),
                    "{number}: what is no count is not known"
                );
            }
            // It adds up, whatever it says.
            let _ = usage + usage;
        }
    }
}

/// Programs that cut strings send half of a character that is escaped as two.
pub(crate) async fn half_a_character<C: Column>() {
    let answer = Answer::new([
        text(&["Hi HALF", "HALF, you"]),
        call("call_1", "look", &["{\"at\":\"x\"}"]),
    ]);
    for (half, whole) in [
        ("\\ud83d", "\u{fffd}"),
        ("\\uDE00", "\u{fffd}"),
        ("\\ud83d\\ude00", "\u{1f600}"),
        ("\\ud83d\\ud83d\\ude00", "\u{fffd}\u{1f600}"),
    ] {
        let events = C::events(&answer).into_iter();
        let events = events.map(|event| event.replace("HALF", half));
        let streamed = read::<C>(events_of::<C>(events)).await.response;
        let body = C::body(&answer).to_string().replace("HALF", half);
        let server = Server::start([raw(&body)]).await;
        let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
        for response in [plain, streamed] {
            let response = response.unwrap_or_else(|error| panic!("{half}: {error}"));
            assert_eq!(response.text(), format!("Hi {whole}{whole}, you"));
            assert_eq!(response.message().tool_calls().count(), 1);
        }
    }
}

/// Writes a `null` behind the items of every list.
fn add_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(add_nulls),
        Value::Array(items) => {
            items.iter_mut().for_each(add_nulls);
            items.push(Value::Null);
        }
        _ => {}
    }
}

pub(crate) async fn lists_with_nothing_in_them<C: Column>() {
    let answer = Answer::new([
        text(&["a", "b"]),
        call("call_1", "look", &["{\"at\":\"x\"}"]),
    ]);
    let mut body = C::body(&answer);
    add_nulls(&mut body);
    let server = Server::start([reply(200, &body)]).await;
    let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
    let events = C::events(&answer).into_iter().map(|event| {
        let Some(start) = event.find('{') else {
            return event;
        };
        let (data, end) = event[start..].split_once('\n').unwrap();
        let mut data: Value = serde_json::from_str(data).unwrap();
        add_nulls(&mut data);
        format!("{}{data}\n{end}", &event[..start])
    });
    let streamed = read::<C>(events_of::<C>(events)).await.response;
    for response in [plain, streamed] {
        assert_eq!(said(response.unwrap().message()), answer.said());
    }
}

pub(crate) async fn a_call_of_a_tool_that_nobody_declared<C: Column>() {
    for name in [
        "nothing",
        "functions.look<|channel|>json",
        "löök at it",
        &"l".repeat(300),
    ] {
        let invented = Answer::new([
            call("call_1", name, &["{\"at\":1}"]),
            call("call_2", "look", &["{\"at\":2}"]),
        ]);
        for is_streamed in [false, true] {
            let (last, seen) = run::<C>(&[invented.clone(), done()], is_streamed).await;
            assert_eq!(seen, [json!({ "at": 2 })], "{name}");
            assert_eq!(calls(&C::sent_back(&last)).len(), 2, "{name}");
            // A name that the provider refuses would end the conversation.
            let sent = names(&last);
            assert!(sent.iter().any(|name| name == "look"), "{sent:?}");
            for name in sent {
                let is_accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
                assert!(name.len() <= 64 && name.bytes().all(is_accepted), "{name}");
            }
        }
    }
}

/// Returns the names in a body.
fn names(body: &Value) -> Vec<String> {
    match body {
        Value::Object(fields) => {
            let name = fields
                .get("name")
                .or(fields.get("tool_name"))
                .and_then(Value::as_str);
            let names = name.map(str::to_owned).into_iter();
            names.chain(fields.values().flat_map(names_of)).collect()
        }
        other => names_of(other),
    }
}

fn names_of(value: &Value) -> Vec<String> {
    match value {
        Value::Object(_) => names(value),
        Value::Array(values) => values.iter().flat_map(names_of).collect(),
        _ => Vec::new(),
    }
}

pub(crate) async fn arguments_that_are_no_object<C: Column>() {
    for arguments in ["[1,2]", "\"here\"", "7", "true"] {
        let odd = Answer::new([
            call("call_1", "look", &[arguments]),
            call("call_2", "look", &["{\"at\":2}"]),
        ]);
        for response in both::<C>(&odd).await {
            let call = response.message().tool_calls().next().unwrap();
            let expected: Value = serde_json::from_str(arguments).unwrap();
            assert_eq!(call.arguments.value(), &expected, "{arguments}");
        }
        for is_streamed in [false, true] {
            let (last, seen) = run::<C>(&[odd.clone(), done()], is_streamed).await;
            assert!(seen.contains(&json!({ "at": 2 })), "{arguments}: {seen:?}");
            assert_eq!(calls(&C::sent_back(&last)).len(), 2, "{arguments}");
        }
    }
}

/// As Granite, GLM, Nova and others write them: the object is in a JSON string.
pub(crate) async fn arguments_that_are_encoded_twice<C: Column>() {
    let object = json!({ "at": "x" });
    let once = Value::from(object.to_string()).to_string();
    let thrice = Value::from(Value::from(once.clone()).to_string()).to_string();
    for text in [once, thrice] {
        let odd = Answer::new([call("call_1", "look", &[&text])]);
        for response in both::<C>(&odd).await {
            let call = response.message().tool_calls().next().unwrap();
            assert_eq!(call.arguments, object, "{text}");
        }
        for is_streamed in [false, true] {
            let (last, seen) = run::<C>(&[odd.clone(), done()], is_streamed).await;
            assert_eq!(seen, std::slice::from_ref(&object), "{text}");
            assert!(!last.to_string().contains("INVALID_JSON"), "{last}");
        }
    }
}

/// Writes brackets for the text `DEEP`.
fn nested(text: &str) -> String {
    let brackets = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    text.replace("\\\"DEEP\\\"", &brackets)
        .replace("\"DEEP\"", &brackets)
}

fn raw(body: &str) -> Reply {
    whole(200, &[("content-type", "application/json")], body)
}

pub(crate) async fn arguments_of_ten_thousand_levels<C: Column>() {
    let deep = Answer::new([call("call_1", "look", &["{\"at\":\"DEEP\"}"])]);
    let events = C::events(&deep);
    let streamed = read::<C>(events_of::<C>(events.iter().map(|event| nested(event)))).await;
    let server = Server::start([raw(&nested(&C::body(&deep).to_string()))]).await;
    let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
    for response in [plain, streamed.response] {
        let response = response.unwrap();
        let call = response.message().tool_calls().next().unwrap();
        assert!(call.arguments.as_str().contains("[[[["));
        assert!(!call.arguments.value().is_object(), "too deep for a tool");
        // It goes back all the same.
        let result = ToolResult::new(call, [Part::from_text("The arguments are not valid.")]);
        let said = [
            Message::user("Look."),
            response.message().clone(),
            Message::tool(result),
        ];
        let (request, mut body) = (ModelRequest::new(said), Vec::new());
        let call = Call::new(&request).with_model("test-model");
        C::Protocol::default().encode(&call, &mut body).unwrap();
        assert!(!body.is_empty());
    }
}

/// A field that nobody knows is skipped, or else too much to read. It does not end the program.
pub(crate) async fn a_field_of_ten_thousand_levels<C: Column>() {
    let answer = Answer::new([text(&["ok"])]);
    let mut body = C::body(&answer);
    body["surprise"] = "DEEP".into();
    let event = format!(
        "{}\n\n",
        C::unknown_event()
            .trim_end()
            .replacen('{', "{\"surprise\":\"DEEP\",", 1)
    );
    let events = [event].into_iter().chain(C::events(&answer));
    let streamed = read::<C>(events_of::<C>(events.map(|event| nested(&event)))).await;
    let server = Server::start([raw(&nested(&body.to_string()))]).await;
    let plain = test_support::call(model::<C>(&server), ModelRequest::default()).await;
    for response in [plain, streamed.response] {
        match response {
            Ok(response) => assert_eq!(response.text(), "ok"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Protocol, "{error}"),
        }
    }
}
