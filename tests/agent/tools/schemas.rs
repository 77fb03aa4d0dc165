//! Schemas that a provider would refuse: parameters that are no object, names of tools, strict
//! formats.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::{ServiceExt, service_fn};
use tower_agent::agent::BuildError;
use tower_agent::callback::before_tool;
use tower_agent::message::ToolCall;
use tower_agent::model::ResponseFormat;
use tower_agent::tool::{InvalidArguments, InvalidTool, ToolDeclaration};
use tower_agent::{
    Agent, AgentRequest, Effect, Error, ErrorKind, Tool, ToolRequest, ToolResponse, ToolSet,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Node {
    name: String,
    children: Vec<Node>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Expression {
    Number(f64),
    Sum(Box<Expression>, Box<Expression>),
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
enum Colour {
    /// As blood.
    Red,
    Green,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(tag = "type")]
enum Shape {
    Circle { radius: f64 },
    Square { side: u32 },
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Flattened {
    name: String,
    #[serde(flatten)]
    shape: Shape,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Nothing;

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Id(String);

fn parameters<A: JsonSchema>() -> Value {
    ToolDeclaration::new("tool", "A tool.")
        .with_arguments::<A>()
        .parameters()
        .clone()
}

/// Returns the value that the tool's function received for these arguments, or the error.
async fn given<A>(arguments: Value) -> Result<Value, Error>
where
    A: serde::de::DeserializeOwned + Serialize + JsonSchema + 'static,
{
    let tool = Tool::function("tool", "A tool.", |arguments: A| {
        serde_json::to_value(arguments).unwrap_or_default()
    });
    let request = ToolRequest::new(ToolCall::new("call", "tool", arguments))
        .with_declaration(Some(tool.declaration().clone()));
    tool.into_service()
        .oneshot(request)
        .await
        .map(|response| response.value().clone())
}

/// The schema is one that the strictest provider takes at the root of a tool's parameters, and a
/// value of the type fits it.
#[track_caller]
fn assert_object(schema: &Value, fits: &Value) {
    assert_eq!(schema["type"], "object", "{schema}");
    assert!(schema["properties"].is_object(), "{schema}");
    for refused in ["$ref", "allOf", "anyOf", "const", "enum", "not", "oneOf"] {
        assert!(
            schema.get(refused).is_none(),
            "`{refused}` at the root of {schema}"
        );
    }
    let validator = jsonschema::draft202012::new(schema).expect("a schema");
    assert!(validator.is_valid(fits), "{fits} does not fit {schema}");
}

async fn is_wrapped<A>(inner: Value)
where
    A: serde::de::DeserializeOwned + Serialize + JsonSchema + 'static,
{
    let sent = json!({ "value": inner });
    assert_object(&parameters::<A>(), &sent);
    assert_eq!(given::<A>(sent).await.unwrap(), inner);
}

#[tokio::test]
async fn arguments_of_every_type_are_sent_as_an_object_and_unwrapped_for_the_function() {
    is_wrapped::<u32>(json!(3)).await;
    is_wrapped::<bool>(json!(true)).await;
    is_wrapped::<String>(json!("disk")).await;
    is_wrapped::<Id>(json!("disk")).await;
    is_wrapped::<Vec<String>>(json!(["a", "b"])).await;
    is_wrapped::<(f64, String)>(json!([1.5, "b"])).await;
    is_wrapped::<Colour>(json!("Red")).await;
    is_wrapped::<Shape>(json!({ "type": "Square", "side": 2 })).await;
    is_wrapped::<Flattened>(json!({ "name": "a", "type": "Square", "side": 2 })).await;
    is_wrapped::<Expression>(json!({ "Sum": [{ "Number": 1.0 }, { "Number": 2.0 }] })).await;
    is_wrapped::<Option<u32>>(json!(3)).await;
    is_wrapped::<Option<u32>>(Value::Null).await;
    is_wrapped::<Option<Node>>(json!({ "name": "a", "children": [] })).await;
    is_wrapped::<Vec<Node>>(json!([{ "name": "a", "children": [] }])).await;
}

#[tokio::test]
async fn an_object_is_not_wrapped() {
    let node = json!({ "name": "a", "children": [{ "name": "b", "children": [] }] });
    assert_object(&parameters::<Node>(), &node);
    assert_eq!(given::<Node>(node.clone()).await.unwrap(), node);

    let map = json!({ "a": 1, "value": 2 });
    assert_object(&parameters::<BTreeMap<String, u32>>(), &map);
    assert_eq!(
        given::<BTreeMap<String, u32>>(map.clone()).await.unwrap(),
        map
    );
}

#[tokio::test]
async fn a_bare_value_is_an_object_with_any_properties() {
    let any = json!({ "value": 1, "more": [2] });
    let schema = parameters::<Value>();
    assert_object(&schema, &any);
    assert_eq!(schema["additionalProperties"], true);
    assert_eq!(given::<Value>(any.clone()).await.unwrap(), any);
}

#[tokio::test]
async fn no_arguments_are_an_empty_object() {
    for schema in [parameters::<()>(), parameters::<Nothing>()] {
        assert_eq!(schema, json!({ "type": "object", "properties": {} }));
    }
    for sent in [json!({}), json!({ "reason": "none" }), Value::Null] {
        given::<()>(sent.clone()).await.unwrap();
        given::<Nothing>(sent).await.unwrap();
    }
}

#[tokio::test]
async fn an_optional_argument_may_be_left_out() {
    assert_object(&parameters::<Option<u32>>(), &json!({}));
    assert_eq!(given::<Option<u32>>(json!({})).await.unwrap(), Value::Null);
}

#[tokio::test]
async fn an_argument_that_is_sent_bare_is_taken() {
    assert_eq!(given::<String>(json!("disk")).await.unwrap(), "disk");
    assert_eq!(given::<u32>(json!(3)).await.unwrap(), 3);
    assert_eq!(
        given::<Option<u32>>(Value::Null).await.unwrap(),
        Value::Null
    );
    assert_eq!(given::<Vec<u32>>(json!([3])).await.unwrap(), json!([3]));
    // Without a declaration, too.
    let tool = Tool::function("tool", "A tool.", |disk: String| disk).into_service();
    let request = ToolRequest::new(ToolCall::new("call", "tool", json!("disk")));
    assert_eq!(tool.oneshot(request).await.unwrap().value(), "disk");
}

#[tokio::test]
async fn an_object_that_broke_off_is_not_taken_for_a_text() {
    let call = ToolCall::from_text("call", "tool", r#"{"value": "di"#);
    let error = given::<String>(call.arguments.value().clone())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    assert!(error.message().contains("not JSON"), "{error}");
}

#[tokio::test]
async fn an_argument_that_does_not_fit_is_named_where_the_model_has_put_it() {
    #[track_caller]
    fn says(result: Result<Value, Error>, field: &str, problem: &str) {
        let error = result.unwrap_err();
        let invalid = error.downcast_ref::<InvalidArguments>().expect("typed");
        assert_eq!(invalid.field, field, "{invalid}");
        assert!(invalid.problem.contains(problem), "{invalid}");
        assert!(invalid.expected.is_some(), "{invalid}");
    }
    says(
        given::<String>(json!({ "value": 3 })).await,
        "value",
        "expected a string",
    );
    says(given::<String>(json!({})).await, "value", "is missing");
    says(
        given::<String>(json!({ "disk": "a" })).await,
        "value",
        "is missing",
    );
    says(
        given::<Vec<u32>>(json!({ "value": [1, "b"] })).await,
        "value[1]",
        "expected u32",
    );
    says(
        given::<Vec<u32>>(json!([1, "b"])).await,
        "value[1]",
        "expected u32",
    );
    let nodes = json!({ "value": [{ "name": "a" }] });
    says(
        given::<Vec<Node>>(nodes).await,
        "value[0].children",
        "is missing",
    );
}

#[tokio::test]
async fn callbacks_see_one_form_however_the_model_has_sent_it() {
    for sent in [json!("disk"), json!({ "value": "disk" })] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let ran = Arc::new(Mutex::new(Vec::new()));
        let tool = Tool::function("wipe", "Wipes.", {
            let ran = ran.clone();
            move |disk: String| ran.lock().unwrap().push(disk)
        });
        let model = ScriptedModel::new([Turn::tool("wipe", sent), Turn::from_text("Done.")]);
        let agent = Agent::builder(model)
            .tool(tool)
            .on_tool(before_tool({
                let seen = seen.clone();
                move |request| {
                    seen.lock().unwrap().push(request.arguments().clone());
                    request.arguments_mut()["value"] = json!("tape");
                }
            }))
            .build()
            .unwrap();
        agent.run("Wipe it.").await.unwrap();
        assert_eq!(*seen.lock().unwrap(), [json!({ "value": "disk" })]);
        assert_eq!(*ran.lock().unwrap(), ["tape"]);
    }
}

#[tokio::test]
async fn an_approvals_edit_has_the_form_of_the_declared_schema() {
    let ran = Arc::new(Mutex::new(Vec::new()));
    let refund = Tool::function("refund", "Pays back.", {
        let ran = ran.clone();
        move |euros: u32| ran.lock().unwrap().push(euros)
    });
    let call = Turn::tool("refund", json!({ "value": 100 }));
    let agent = Agent::builder(ScriptedModel::new([call, Turn::from_text("Paid.")]))
        .tool(refund)
        .on_tool(Approval::of_tools(["refund"]).allow_edits())
        .build()
        .unwrap();
    let paused = agent.run("My money!").await.unwrap();
    let edit = json!({ "approved": true, "editedArgs": { "value": 50 } });
    let yes: Vec<_> = paused
        .interrupts()
        .iter()
        .map(|pending| tower_agent::Resolution::resolved(&pending.id, edit.clone()))
        .collect();
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions(yes);
    assert_eq!(agent.run(request).await.unwrap().text(), "Paid.");
    assert_eq!(*ran.lock().unwrap(), [50]);
}

fn answers(declaration: ToolDeclaration) -> Tool {
    let answer = |_: ToolRequest| async { Ok::<_, Error>(ToolResponse::new("yes")) };
    Tool::service(declaration, service_fn(answer))
}

#[track_caller]
fn refused(tool: Tool, wanted: &InvalidTool) {
    let mut tools = ToolSet::new();
    assert_eq!(tools.insert(tool.clone()).unwrap_err(), *wanted);
    assert!(tools.is_empty());
    let built = Agent::builder(ScriptedModel::always(Turn::from_text(".")))
        .tool(tool)
        .build();
    assert_eq!(built.unwrap_err(), BuildError::Tool(wanted.clone()));
}

#[test]
fn parameters_made_by_hand_that_are_no_object_are_refused_when_the_agent_is_built() {
    let by_hand = |schema| answers(ToolDeclaration::new("tool", "A tool.").with_parameters(schema));
    let schemas = [
        json!({ "type": "string" }),
        json!({ "type": ["object", "null"] }),
        json!({ "properties": {} }),
        json!(true),
        json!(null),
    ];
    for schema in schemas {
        refused(by_hand(schema), &InvalidTool::Parameters("tool".into()));
    }
    let mut tools = ToolSet::new();
    tools
        .insert(by_hand(json!({ "type": "object", "properties": {} })))
        .unwrap();
}

#[test]
fn a_name_that_no_provider_takes_is_refused_when_the_agent_is_built() {
    let long = "x".repeat(65);
    for name in ["", "two words", "a.b", "a/b", "größe", "a\n", &long] {
        let tool = Tool::function(name, "A tool.", |_: ()| ());
        refused(tool, &InvalidTool::Name(name.into()));
    }
    let mut tools = ToolSet::new();
    for name in ["a", "A-b_9", &long[1..]] {
        tools
            .insert(Tool::function(name, "A tool.", |_: ()| ()))
            .unwrap();
    }
}

#[test]
fn an_agent_whose_name_is_no_tools_name_is_no_tool() {
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("."))).name("The Geographer");
    let tool = agent.build().unwrap().into_tool("Knows every capital.");
    refused(tool, &InvalidTool::Name("The Geographer".into()));
    let error = InvalidTool::Name("The Geographer".into()).to_string();
    assert!(
        error.contains("The Geographer") && error.contains("64"),
        "{error}"
    );
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Report {
    title: String,
    colour: Option<Colour>,
    shape: Shape,
    root: Option<Node>,
    #[serde(default)]
    pages: u32,
    pair: (f64, String),
    letter: char,
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize, Serialize, JsonSchema)]
struct Part {
    /// The text on it.
    text: Option<String>,
    expression: Expression,
}

fn format<T: JsonSchema>() -> (Value, bool) {
    match ResponseFormat::of::<T>() {
        ResponseFormat::JsonSchema { schema, strict, .. } => (schema, strict),
        other => panic!("{other:?}"),
    }
}

/// Every object in it is closed and has all its properties; no keyword is one that a strict mode
/// refuses.
fn assert_closed(schema: &Value, place: &str) {
    let object = schema
        .as_object()
        .unwrap_or_else(|| panic!("{place} is {schema}"));
    for refused in [
        "allOf",
        "default",
        "not",
        "oneOf",
        "prefixItems",
        "minLength",
        "title",
    ] {
        assert!(
            !object.contains_key(refused),
            "`{refused}` at {place}: {schema}"
        );
    }
    let kinds = ["$ref", "anyOf", "const", "enum", "type"];
    assert!(
        kinds.iter().any(|kind| object.contains_key(*kind)),
        "{place} is anything: {schema}"
    );
    let is_object = schema["type"] == "object"
        || schema["type"]
            .as_array()
            .is_some_and(|types| types.contains(&json!("object")));
    if is_object {
        assert_eq!(schema["additionalProperties"], false, "{place}: {schema}");
        let mut properties: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        let mut required: Vec<_> = schema["required"].as_array().unwrap().iter().collect();
        properties.sort();
        required.sort_by_key(|name| name.as_str());
        assert!(
            required
                .iter()
                .map(|name| name.as_str())
                .eq(properties.iter().map(|p| Some(p.as_str())))
        );
    }
    for keyword in ["properties", "$defs"] {
        for (name, part) in schema[keyword].as_object().into_iter().flatten() {
            assert_closed(part, &format!("{place}/{keyword}/{name}"));
        }
    }
    for (index, part) in schema["anyOf"].as_array().into_iter().flatten().enumerate() {
        assert_closed(part, &format!("{place}/anyOf/{index}"));
    }
    if let Some(items) = object.get("items") {
        assert_closed(items, &format!("{place}/items"));
    }
}

#[test]
fn a_strict_format_is_closed_at_every_level_with_every_property_required() {
    let report = json!({
        "title": "a", "colour": null, "shape": { "type": "Circle", "radius": 1.5 },
        "root": { "name": "a", "children": [{ "name": "b", "children": [] }] }, "pages": 3,
        "pair": [1.5, "b"], "letter": "c",
        "parts": [{ "text": null, "expression": { "Sum": [{ "Number": 1.0 }, { "Number": 2.0 }] } }],
    });
    let (schema, strict) = format::<Report>();
    assert!(strict);
    assert_closed(&schema, "");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    validator.validate(&report).unwrap();
    for left_out in ["colour", "pages"] {
        let mut report = report.clone();
        report.as_object_mut().unwrap().remove(left_out);
        assert!(!validator.is_valid(&report), "without {left_out}");
    }
    serde_json::from_value::<Report>(report).unwrap();

    let (schema, strict) = format::<Node>();
    assert!(strict);
    assert_closed(&schema, "");
}

#[test]
fn a_format_that_cannot_be_closed_is_not_called_strict() {
    #[derive(JsonSchema)]
    #[expect(dead_code)]
    struct With<T> {
        value: T,
    }
    assert!(!format::<With<BTreeMap<String, u32>>>().1);
    assert!(!format::<With<Vec<Option<BTreeMap<String, u32>>>>>().1);
    assert!(!format::<With<Value>>().1);
    assert!(!format::<With<Flattened>>().1);
    assert!(!format::<Flattened>().1);
    // No object at the root.
    assert!(!format::<Vec<Part>>().1);
    assert!(!format::<Shape>().1);
    assert!(!format::<Option<Part>>().1);
    // A map stays one: what does not become strict is not half closed.
    let (schema, _) = format::<With<BTreeMap<String, u32>>>();
    assert!(schema.get("additionalProperties").is_none(), "{schema}");
    assert!(format::<With<Vec<Part>>>().1);
}

#[test]
fn the_name_of_a_format_is_one_that_providers_take() {
    #[derive(JsonSchema)]
    #[schemars(
        rename = "A Report<of sales> with a name that is far longer than providers would take"
    )]
    #[expect(dead_code)]
    struct Sales {
        euros: u32,
    }
    let ResponseFormat::JsonSchema { name, .. } = ResponseFormat::of::<Sales>() else {
        panic!()
    };
    assert_eq!(
        name,
        "A_Report_of_sales__with_a_name_that_is_far_longer_than_providers"
    );
}

#[test]
fn a_declaration_keeps_what_it_says_of_its_effect() {
    let tool = Tool::function("look", "Looks.", |_: u32| ()).effect(Effect::Pure);
    assert_eq!(tool.declaration().effect(), Effect::Pure);
    assert_eq!(
        tool.declaration().parameters()["required"],
        json!(["value"])
    );
}
