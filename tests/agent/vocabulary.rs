//! What is said and what can go wrong: messages, arguments, data, errors.

use std::error::Error as StdError;
use std::time::Duration;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_agent::call::Extensions;
use tower_agent::message::{self, Messages, Metadata, ToolCall, ToolResult};
use tower_agent::model::{PromptCache, ReasoningEffort, ToolChoice};
use tower_agent::tool::InvalidArguments;
use tower_agent::{
    BoxError, Effect, Error, ErrorKind, Interrupt, Message, ModelRequest, ModelResponse, Part,
    Role, RunContext, Settings, State, Tool, ToolRequest, ToolSet,
};

use test_support::property::cases;

fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut link = error.source();
    while let Some(cause) = link {
        text = format!("{text} <- {cause}");
        link = cause.source();
    }
    text
}

#[derive(Debug, thiserror::Error)]
#[error("the layer gave up")]
struct Wrapping(#[source] BoxError);

#[test]
fn an_error_is_found_again_through_the_layers_that_box_it() {
    let ours = Error::abort("over budget");
    let boxed: BoxError = Wrapping(Wrapping(ours.into()).into()).into();
    let found = Error::from(boxed);
    assert_eq!(
        (found.kind(), found.message()),
        (ErrorKind::Aborted, "over budget")
    );
}

#[tokio::test(start_paused = true)]
async fn errors_of_tower_layers_have_their_kind() {
    let hangs =
        service_fn(|_: ModelRequest| std::future::pending::<Result<ModelResponse, Error>>());
    let timed = tower::timeout::TimeoutLayer::new(Duration::from_secs(1)).layer(hangs);
    let elapsed = Error::from(timed.oneshot(ModelRequest::default()).await.unwrap_err());
    assert_eq!(elapsed.kind(), ErrorKind::Timeout);
    assert!(elapsed.is_retryable());
    assert!(
        elapsed
            .downcast_ref::<tower::timeout::error::Elapsed>()
            .is_some()
    );

    let limit = tower::limit::ConcurrencyLimit::new(hangs, 1);
    let mut busy = limit.clone();
    let held = busy.ready().await.unwrap().call(ModelRequest::default());
    let mut shed = tower::load_shed::LoadShed::new(limit);
    let refused = shed
        .ready()
        .await
        .unwrap()
        .call(ModelRequest::default())
        .await
        .unwrap_err();
    assert_eq!(Error::from(refused).kind(), ErrorKind::Overloaded);
    drop(held);

    let (buffer, worker) = tower::buffer::Buffer::<ModelRequest, _>::pair(hangs, 1);
    drop(worker);
    let closed = Error::from(buffer.oneshot(ModelRequest::default()).await.unwrap_err());
    assert_eq!(closed.kind(), ErrorKind::Other);
    assert!(!closed.is_retryable());
}

#[test]
fn an_error_says_what_happened_and_its_causes_once() {
    let parse = "x".parse::<u8>().unwrap_err();
    assert_eq!(
        chain(&Error::from(parse.clone())),
        "failed: invalid digit found in string"
    );
    let told = Error::new(ErrorKind::Tool, "the price is no number").with_source(parse);
    assert_eq!(
        chain(&told),
        "tool failed: the price is no number <- invalid digit found in string"
    );
    let limited = Error::new(ErrorKind::RateLimited, "slow down")
        .with_retry_after(Duration::from_millis(1500))
        .with_metadata(
            Metadata::default()
                .with_status(429)
                .with_request_id("req_1"),
        );
    assert_eq!(
        limited.to_string(),
        "rate limited: slow down (status 429, request req_1); retry after 1.5 s"
    );
    let denied = Error::new(ErrorKind::Auth, "no such key");
    assert_eq!(
        denied.to_string(),
        "not authorised: no such key; check the API key"
    );
}

#[test]
fn only_some_failures_are_worth_a_second_try() {
    use ErrorKind::*;
    for kind in [
        Timeout,
        RateLimited,
        Overloaded,
        Provider,
        Connection,
        Protocol,
    ] {
        assert!(Error::new(kind, "").is_retryable(), "{kind:?}");
    }
    for kind in [
        Aborted,
        Auth,
        NotFound,
        InvalidRequest,
        ContextLength,
        Tool,
        InvalidArguments,
    ] {
        assert!(!Error::new(kind, "").is_retryable(), "{kind:?}");
    }
    assert!(
        !Error::new(RateLimited, "quota spent")
            .with_retryable(false)
            .is_retryable()
    );
}

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
            Part::image_base64("image/png", "iVB"),
        ],
    );

    let report =
        message::MediaSource::url("https://example.com/report").with_media_type("text/csv");
    let report = message::Document::new(report).with_name("report.csv");

    let conversation = Messages::from([
        Message::system("Be brief."),
        Message::user("Weather?")
            .with_part(Part::image_url("https://example.com/sky.png"))
            .with_part(Part::audio_base64("audio/wav", "UklGRg=="))
            .with_part(Part::document_file("file-1"))
            .with_part(report.clone().into()),
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
        message::MediaSource::url("https://example.com/sky.png")
    );
    assert_eq!(restored[1].parts()[4], Part::Document(report));
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

#[test]
fn of_few_and_of_many_calls_those_without_a_result_are_open() {
    for count in [4, 40] {
        let calls: Vec<_> = (0..count)
            .map(|n| ToolCall::new(format!("call_{n}"), "add", json!({})))
            .collect();
        let asks = Message::new(Role::Assistant, calls.iter().cloned().map(Part::ToolCall));
        let mut messages = Messages::from([Message::user("Sums?"), asks]);
        for call in calls.iter().step_by(2) {
            messages.answer(&call.id, 3).unwrap();
        }
        let open: Vec<_> = messages.open_calls().collect();
        assert_eq!(open, calls.iter().skip(1).step_by(2).collect::<Vec<_>>());
    }
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

#[test]
fn changing_one_clone_of_a_request_leaves_the_other() {
    let mut settings = Settings::default();
    settings.temperature = Some(0.5);
    let request = ModelRequest::new([Message::user("?")]).with_settings(settings);
    let mut changed = request.clone();
    changed.settings_mut().temperature = Some(1.0);
    changed.messages_mut().push(Message::user("!"));
    changed.add_instructions("one");
    changed.add_instructions("two");
    changed.extensions_mut().insert(7_u32);

    assert_eq!(request.settings().temperature, Some(0.5));
    assert_eq!(
        (request.messages().len(), request.instructions()),
        (1, None)
    );
    assert!(request.extensions().is_empty());
    assert_eq!(changed.instructions(), Some("one\n\ntwo"));
}

#[test]
fn extensions_hold_one_value_of_each_type() {
    let mut extensions = Extensions::new();
    assert!(extensions.insert("first").is_none());
    assert_eq!(extensions.insert("second").as_deref(), Some(&"first"));
    extensions.insert(1_u8);
    let shared = extensions.clone();
    assert_eq!(extensions.remove::<u8>().as_deref(), Some(&1));
    assert_eq!(
        (extensions.get::<u8>(), shared.get::<u8>()),
        (None, Some(&1))
    );
    assert_eq!(extensions.get::<&str>(), Some(&"second"));
}

#[test]
fn settings_fall_back_one_by_one() {
    let mut base = Settings::default();
    base.model = Some("small".into());
    base.tool_choice = Some(ToolChoice::Auto);
    base.stop = vec!["END".into()];
    base.prompt_cache = Some(PromptCache::new().with_key("base"));
    base.extra.insert("top_k".into(), json!(40));
    base.extra.insert("user".into(), json!("a"));
    let mut own = Settings::default();
    own.tool_choice = Some(ToolChoice::Required);
    own.reasoning_effort = Some(ReasoningEffort::Low);
    own.extra.insert("user".into(), json!("b"));

    let merged = own.or(&base);

    assert_eq!(merged.model.as_deref(), Some("small"));
    assert_eq!(merged.tool_choice, Some(ToolChoice::Required));
    assert_eq!(merged.reasoning_effort, Some(ReasoningEffort::Low));
    assert_eq!(merged.stop, ["END"]);
    assert_eq!(
        merged.prompt_cache,
        Some(PromptCache::new().with_key("base"))
    );
    assert_eq!(
        Value::Object(merged.extra),
        json!({ "top_k": 40, "user": "b" })
    );
}

#[test]
fn values_and_state_are_separate() {
    let context = RunContext::default();
    context.values().set("clock", std::time::Instant::now());
    assert!(
        context
            .values()
            .get::<std::time::Instant>("clock")
            .unwrap()
            .is_some()
    );
    let wrong = context.values().get::<String>("clock").unwrap_err();
    assert_eq!(
        wrong.to_string(),
        "the value under `clock` is a `std::time::Instant`, not a `alloc::string::String`"
    );
    assert!(context.values().remove("clock") && !context.values().remove("clock"));
    assert!(context.values().get::<String>("clock").unwrap().is_none());
    assert_eq!(context.state().get("clock"), None);
}

#[test]
fn a_delta_has_what_really_changed() {
    let state = State::from_iter([
        ("same".to_owned(), json!(1)),
        ("changed".to_owned(), json!(1)),
        ("gone".to_owned(), json!(1)),
    ]);
    state.set("same", 2);
    state.set("same", 1);
    state.set("changed", 2);
    state.remove("gone");
    state.set("brief", 1);
    state.remove("brief");
    state.remove("never there");
    state.set("new", json!([1]));

    let delta = state.delta();
    assert_eq!(
        Value::Object(delta.set),
        json!({ "changed": 2, "new": [1] })
    );
    assert_eq!(delta.removed, ["gone"]);
}

#[test]
fn text_that_is_no_json_is_kept() {
    let call = ToolCall::from_text("1", "add", r#"{"a": 1, "#);
    assert_eq!(call.arguments, Value::String(r#"{"a": 1, "#.into()));
    assert_eq!(call.arguments.as_str(), r#"{"a": 1, "#);
    assert!(!call.arguments.is_json());
    assert_eq!(ToolCall::from_text("1", "add", " ").arguments, json!({}));
    assert_eq!(
        ToolCall::from_text("1", "add", r#"{"a": 1}"#)
            .arguments
            .as_str(),
        r#"{"a": 1}"#
    );
}

#[test]
fn arguments_are_saved_letter_for_letter() {
    let texts = [
        r#" { "b" : 123456789012345678901234567890 ,"a":1.10, "a": "\u0041" } "#,
        r#"{"a": 1, "#,
        "\"disk\"",
        "3",
        "{}",
    ];
    for text in texts {
        let call = ToolCall::from_text("1", "add", text);
        let asks = Message::new(tower_agent::Role::Assistant, [Part::from(call)]);
        let saved = serde_json::to_value(&asks).unwrap();
        let restored: Message = serde_json::from_value(saved).unwrap();
        assert_eq!(restored, asks);
        assert_eq!(
            restored.tool_calls().next().unwrap().arguments.as_str(),
            text
        );
    }
    // A program that builds messages need not write text.
    let plain = json!({ "id": "1", "name": "add", "arguments": { "a": 1 } });
    let call: ToolCall = serde_json::from_value(plain).unwrap();
    assert_eq!(
        (call.arguments.as_str(), call.arguments == json!({ "a": 1 })),
        (r#"{"a":1}"#, true)
    );
}

#[tokio::test]
async fn a_tool_reads_what_the_model_wrote() {
    #[derive(Deserialize, JsonSchema)]
    struct Large {
        n: u128,
    }
    const TEXT: &str = r#"{"n": 123456789012345678901234567890}"#;
    let tool = Tool::function("large", "Takes a large number.", |Large { n }| {
        n.to_string()
    });
    let call = || ToolRequest::new(ToolCall::from_text("1", "large", TEXT));
    let answer = tool.clone().into_service().oneshot(call()).await.unwrap();
    assert_eq!(answer.value(), "123456789012345678901234567890");

    // What a callback has changed is read in its place.
    let mut changed = call();
    changed.arguments_mut()["n"] = json!(7);
    assert_eq!(changed.call().arguments.as_str(), TEXT);
    assert_eq!(
        tool.into_service().oneshot(changed).await.unwrap().value(),
        "7"
    );
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only parsed")]
struct Search {
    /// Words to look for.
    words: Vec<String>,
    filter: Option<Filter>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only parsed")]
struct Filter {
    /// No later than this year.
    before: u32,
    kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Book,
    Film,
}

#[tokio::test]
async fn bad_arguments_name_the_field_and_what_was_expected() {
    let mut tools = ToolSet::new();
    tools
        .insert(Tool::function("search", "", |_: Search| "found"))
        .unwrap();
    let cases = [
        (json!({}), "words", "is missing", json!("array")),
        (
            json!({ "words": ["a", 2] }),
            "words[1]",
            "invalid type: integer `2`",
            json!("string"),
        ),
        (
            json!({ "words": [], "filter": { "before": -1, "kinds": [] } }),
            "filter.before",
            "invalid value: integer `-1`, expected u32",
            json!("integer"),
        ),
        (
            json!({ "words": [], "filter": { "kinds": [] } }),
            "filter.before",
            "is missing",
            json!("integer"),
        ),
        (
            json!({ "words": [], "filter": { "before": 1, "kinds": ["book", "song"] } }),
            "filter.kinds[1]",
            "unknown variant `song`",
            json!("string"),
        ),
        (
            json!("{\"words\": "),
            "",
            "the arguments are not JSON",
            json!("object"),
        ),
        (json!(7), "", "invalid type: integer `7`", json!("object")),
    ];
    for (arguments, field, problem, expected) in cases {
        let call = ToolCall::new("1", "search", arguments.clone());
        let error = tools
            .clone()
            .oneshot(ToolRequest::new(call))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{arguments}");
        let invalid = error.downcast_ref::<InvalidArguments>().unwrap();
        assert_eq!(invalid.field, field, "{arguments}: {invalid}");
        assert!(
            invalid.problem.starts_with(problem),
            "{arguments}: {invalid}"
        );
        let schema = invalid
            .expected
            .as_ref()
            .unwrap_or_else(|| panic!("{arguments}: {invalid}"));
        let kind = match &schema["type"] {
            Value::Array(either) => either[0].clone(),
            kind => kind.clone(),
        };
        assert_eq!(kind, expected, "{arguments}: {invalid}");
    }
}

#[test]
fn a_schema_is_what_a_provider_can_read() {
    let tool = Tool::function("search", "Finds.", |_: Search| "found").effect(Effect::Pure);
    let schema = tool.declaration().parameters();
    assert_eq!(schema["type"], "object");
    assert_eq!(
        schema["properties"]["words"]["description"],
        "Words to look for."
    );
    assert_eq!(schema["required"], json!(["words"]));
    let text = schema.to_string();
    assert!(
        !text.contains("$ref") && !text.contains("$schema"),
        "{text}"
    );
    assert_eq!(tool.declaration().effect(), Effect::Pure);

    #[derive(Deserialize, JsonSchema)]
    struct Nothing {}
    let none = Tool::function("none", "", |Nothing {}| ());
    let schema = none.declaration().parameters();
    assert_eq!(
        (&schema["type"], &schema["properties"]),
        (&json!("object"), &json!({}))
    );
}

#[test]
fn what_a_run_waits_for_can_be_sent_elsewhere() {
    let pending = Interrupt::new("1", "confirmation")
        .with_message("Really?")
        .with_payload(json!({ "amount": 7 }));
    let sent = serde_json::to_value(&pending).unwrap();
    assert_eq!(
        sent,
        json!({ "id": "1", "reason": "confirmation", "message": "Really?", "payload": { "amount": 7 } })
    );
    assert_eq!(serde_json::from_value::<Interrupt>(sent).unwrap(), pending);
}
