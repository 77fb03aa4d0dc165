//! Arguments as the model wrote them, and errors that name the field.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::message::{Arguments, ToolCall};
use tower_agent::tool::InvalidArguments;
use tower_agent::{Effect, ErrorKind, Message, Part, Tool, ToolRequest, ToolSet};

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

    // The changed arguments are read instead of the model's.
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

async fn refusal(text: &str) -> InvalidArguments {
    let mut tools = ToolSet::new();
    tools
        .insert(Tool::function("search", "", |_: Search| "found"))
        .unwrap();
    let call = ToolCall::from_text("1", "search", text);
    let error = tools.oneshot(ToolRequest::new(call)).await.unwrap_err();
    error.downcast_ref::<InvalidArguments>().unwrap().clone()
}

/// The model cannot mend what it is told wrongly.
#[tokio::test]
async fn a_string_where_an_object_belongs_is_called_one() {
    for (text, problem) in [
        ("{\"words\":", "the arguments are not JSON: {"),
        ("search it", "the arguments are not JSON: search it"),
        (
            "\"search it\"",
            "the arguments are a string where an object belongs: search it",
        ),
        (
            "\"[1,2]\"",
            "the arguments are a string that holds JSON where an object belongs: [1,2]",
        ),
    ] {
        let invalid = refusal(text).await;
        assert_eq!(invalid.field, "");
        assert!(invalid.problem.starts_with(problem), "{text}: {invalid}");
    }
    let filter = "{\"words\":[],\"filter\":\"{\\\"before\\\":1,\\\"kinds\\\":[]}\"}";
    let invalid = refusal(filter).await;
    assert_eq!(invalid.field, "filter");
    let problem = "it is a string that holds JSON";
    assert!(invalid.problem.contains(problem), "{invalid}");
}

/// Whoever reads them before the tool does finds what the tool gets.
#[test]
fn an_object_in_a_string_is_taken_out_of_it() {
    let object = r#"{"q": "x", "n": 1.10}"#;
    let once = serde_json::to_string(object).unwrap();
    let twice = serde_json::to_string(&once).unwrap();
    for text in [object, &once, &twice] {
        let arguments = Arguments::from_text(text);
        assert_eq!(arguments.as_str(), object);
        assert_eq!(arguments.value()["q"], "x");
        let stored = serde_json::to_string(&arguments).unwrap();
        let stored: Arguments = serde_json::from_str(&stored).unwrap();
        assert_eq!(stored, arguments);
    }
    for text in [
        "\"x\"",
        "\"[1]\"",
        "\"{\"",
        "\"\\\"x\\\"\"",
        "\"{\\\"a\\\":1} and\"",
    ] {
        assert_eq!(Arguments::from_text(text).as_str(), text);
    }
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
