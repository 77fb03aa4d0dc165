//! A guard reads the arguments that the tool gets: nothing passes as another JSON type.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::message::ToolCall;
use tower_agent::tool::{InvalidArguments, ToolDeclaration};
use tower_agent::{Agent, Error, ErrorKind, Message, ModelResponse, Tool, ToolRequest};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Payment {
    amount: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Order {
    payment: Payment,
    #[serde(default)]
    more: Option<Payment>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Delete,
    Keep,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Clean {
    mode: Mode,
}

/// A unit variant beside others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Delete,
    Pay(Payment),
    Move { to: String },
    Swap(u32, Payment),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Act {
    action: Action,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tagged {
    Empty,
    Many { payment: Vec<u32> },
    One { payment: Payment },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Flat {
    name: String,
    #[serde(flatten)]
    tagged: Tagged,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Either {
    Payment(Payment),
    Text(String),
    Several(Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "of")]
enum Adjacent {
    Nothing,
    Pay(Payment),
    Both(u32, Mode),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Tree {
    payment: Payment,
    inner: Vec<Tree>,
}

/// Every form in one type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Everything {
    order: Order,
    mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    action: Option<Action>,
    actions: Vec<Action>,
    tagged: BTreeMap<String, Tagged>,
    flat: Option<Box<Flat>>,
    either: Either,
    adjacent: (Adjacent, u8),
    numbers: BTreeMap<u32, Payment>,
    tree: Tree,
    any: Value,
    nothing: (),
}

async fn given<A>(text: &str) -> Result<Value, Error>
where
    A: DeserializeOwned + Serialize + JsonSchema + 'static,
{
    let tool = Tool::function("tool", "A tool.", |arguments: A| {
        serde_json::to_value(arguments).unwrap_or_default()
    });
    let request = ToolRequest::new(ToolCall::from_text("call", "tool", text))
        .with_declaration(Some(tool.declaration().clone()));
    tool.into_service()
        .oneshot(request)
        .await
        .map(|response| response.value().clone())
}

async fn refused<A>(text: &str, field: &str)
where
    A: DeserializeOwned + Serialize + JsonSchema + 'static,
{
    let error = given::<A>(text).await.expect_err(text);
    let invalid = error.downcast_ref::<InvalidArguments>().expect("typed");
    assert_eq!(invalid.field, field, "{text}: {invalid}");
    assert!(invalid.expected.is_some(), "{text}: {invalid}");
}

#[tokio::test]
async fn a_guard_of_an_amount_is_asked_whatever_json_the_model_sends() {
    for text in [
        r#"{"payment":{"amount":500}}"#,
        r#"{"payment":[500]}"#,
        r#"[[500]]"#,
    ] {
        let paid = Arc::new(Mutex::new(Vec::new()));
        let pay = Tool::function("pay", "Pays.", {
            let paid = paid.clone();
            move |order: Order| paid.lock().unwrap().push(order.payment.amount)
        });
        let dear = |amount: &Value| amount.as_f64() > Some(100.0);
        let guard = Approval::when(move |request| dear(&request.arguments()["payment"]["amount"]));
        let call = ToolCall::from_text("call", "pay", text);
        let model = ScriptedModel::new([
            Turn::response(ModelResponse::from_tool_calls([call])),
            Turn::from_text("Done."),
        ]);
        let agent = Agent::builder(model)
            .tool(pay)
            .on_tool(guard)
            .build()
            .unwrap();
        let response = agent.run("Pay.").await.unwrap();
        let told: String = response
            .new_messages()
            .flat_map(Message::tool_results)
            .map(|result| result.text())
            .collect();
        let is_asked = !response.interrupts().is_empty();
        assert!(
            is_asked || told.contains("invalid arguments"),
            "{text}: {told}"
        );
        assert_eq!(*paid.lock().unwrap(), [0; 0], "{text}");
    }
}

#[tokio::test]
async fn a_value_of_another_json_type_than_the_schema_says_is_refused() {
    refused::<Payment>("[500]", "").await;
    refused::<Order>(r#"{"payment":[500]}"#, "payment").await;
    refused::<Order>(r#"{"payment":{"amount":5},"more":[500]}"#, "more").await;
    refused::<Clean>(r#"{"mode":{"delete":null}}"#, "mode").await;
    refused::<Mode>(r#"{"value":{"delete":null}}"#, "value").await;
    refused::<Act>(r#"{"action":{"delete":null}}"#, "action").await;
    refused::<Act>(r#"{"action":{"pay":[500]}}"#, "action.pay").await;
    refused::<Act>(r#"{"action":{"move":["bin"]}}"#, "action.move").await;
    refused::<Act>(r#"{"action":{"swap":[1,[500]]}}"#, "action.swap[1]").await;
    refused::<Tagged>(
        r#"{"value":{"type":"one","payment":[500]}}"#,
        "value.payment",
    )
    .await;
    refused::<Tagged>(r#"{"value":["one",[500]]}"#, "value").await;
    refused::<Flat>(
        r#"{"value":{"name":"a","type":2,"payment":{"amount":500}}}"#,
        "value.type",
    )
    .await;
    refused::<Adjacent>(r#"{"value":["Pay",{"amount":500}]}"#, "value").await;
    refused::<Adjacent>(r#"{"value":{"kind":"Pay","of":[500]}}"#, "value.of").await;
    refused::<BTreeMap<String, Payment>>(r#"{"a":[500]}"#, "a").await;
    refused::<BTreeMap<String, BTreeMap<u32, Payment>>>(r#"{"a":{"1":[500]}}"#, "a.1").await;
    refused::<Vec<Payment>>(r#"{"value":[[500]]}"#, "value[0]").await;
    let tree = r#"{"payment":{"amount":1},"inner":[{"payment":[500],"inner":[]}]}"#;
    refused::<Tree>(tree, "inner[0].payment").await;
}

#[tokio::test]
async fn changed_arguments_are_checked_alike() {
    let pay = Tool::function("pay", "Pays.", |order: Order| order.payment.amount);
    let call = ToolCall::new("call", "pay", json!({ "payment": { "amount": 5 } }));
    let mut request = ToolRequest::new(call).with_declaration(Some(pay.declaration().clone()));
    request.arguments_mut()["payment"] = json!([500]);
    let checked = pay
        .declaration()
        .check_arguments(request.arguments())
        .unwrap_err();
    let error = pay.into_service().oneshot(request).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    assert_eq!(error.message(), checked.message());
}

#[tokio::test]
async fn only_an_object_is_the_arguments_of_a_tool_that_takes_fields() {
    for text in ["[500]", "\"all\"", "5", "true", r#"{"a":"#] {
        let error = given::<BTreeMap<String, Value>>(text)
            .await
            .expect_err(text);
        assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{text}");
    }
}

#[tokio::test]
async fn a_schema_by_hand_is_followed_and_what_it_does_not_say_is_allowed() {
    let check = |schema: Value, sent: Value| {
        let declaration = ToolDeclaration::new("tool", "A tool.").with_parameters(schema);
        declaration.check_arguments(&sent)
    };
    let schema = json!({
        "type": "object",
        "$defs": { "pay": { "type": "object", "properties": { "amount": { "type": "integer" } } } },
        "properties": {
            "pay": { "allOf": [{ "$ref": "#/$defs/pay" }] },
            "pair": { "prefixItems": [{ "type": "string" }, { "$ref": "#/$defs/pay" }] },
            "mode": { "enum": ["a", "b", 3] },
            "far": { "$ref": "https://example.com/far.json" },
            "new": { "type": "decimal" },
            "round": { "$ref": "#/properties/round" },
        },
        "additionalProperties": { "type": ["string", "null"] },
    });
    let refused = [
        json!({ "pay": [1] }),
        json!({ "pay": { "amount": "1" } }),
        json!({ "pair": ["a", [1]] }),
        json!({ "mode": ["a"] }),
        json!({ "other": { "a": 1 } }),
        json!({ "round": [1] }),
    ];
    for sent in refused {
        let error = check(schema.clone(), sent.clone()).expect_err(&sent.to_string());
        assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{sent}");
    }
    let allowed = [
        json!({ "pay": { "amount": 1, "more": [1] }, "pair": ["a", { "amount": 2 }, [3]] }),
        json!({ "mode": 3, "far": [1], "new": [1], "other": null }),
        json!({ "mode": "c", "pay": null }),
    ];
    for sent in allowed {
        check(schema.clone(), sent.clone()).unwrap_or_else(|error| panic!("{sent}: {error}"));
    }
}

/// Two choices are meant at each of 60 levels, and none fits: 2^60 ways to look at it.
#[tokio::test]
async fn arguments_that_would_take_forever_to_check_are_refused() {
    let again = json!({ "type": "object", "properties": { "a": { "$ref": "#/properties/a" } } });
    let schema = json!({
        "type": "object",
        "properties": { "a": { "anyOf": [again, again, { "type": "string" }] } },
    });
    let declaration = ToolDeclaration::new("tool", "A tool.").with_parameters(schema);
    let mut sent = json!({ "a": 5 });
    for _ in 0..60 {
        sent = json!({ "a": sent });
    }
    let error = declaration.check_arguments(&sent).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
}

fn payment() -> impl Strategy<Value = Payment> {
    any::<u32>().prop_map(|amount| Payment { amount })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![Just(Mode::Delete), Just(Mode::Keep)]
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        Just(Action::Delete),
        payment().prop_map(Action::Pay),
        ".{0,3}".prop_map(|to| Action::Move { to }),
        (any::<u32>(), payment()).prop_map(|(n, payment)| Action::Swap(n, payment)),
    ]
}

fn tagged() -> impl Strategy<Value = Tagged> {
    prop_oneof![
        Just(Tagged::Empty),
        prop::collection::vec(any::<u32>(), 0..3).prop_map(|payment| Tagged::Many { payment }),
        payment().prop_map(|payment| Tagged::One { payment }),
    ]
}

fn either() -> impl Strategy<Value = Either> {
    prop_oneof![
        payment().prop_map(Either::Payment),
        ".{0,3}".prop_map(Either::Text),
        prop::collection::vec(".{0,3}", 0..3).prop_map(Either::Several),
    ]
}

fn adjacent() -> impl Strategy<Value = Adjacent> {
    prop_oneof![
        Just(Adjacent::Nothing),
        payment().prop_map(Adjacent::Pay),
        (any::<u32>(), mode()).prop_map(|(n, mode)| Adjacent::Both(n, mode)),
    ]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = payment().prop_map(|payment| Tree {
        payment,
        inner: Vec::new(),
    });
    leaf.prop_recursive(4, 12, 3, |inner| {
        (payment(), prop::collection::vec(inner, 0..3))
            .prop_map(|(payment, inner)| Tree { payment, inner })
    })
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 10, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn everything() -> impl Strategy<Value = Everything> {
    let order = (payment(), prop::option::of(payment()))
        .prop_map(|(payment, more)| Order { payment, more });
    let flat = (".{0,3}", tagged()).prop_map(|(name, tagged)| Box::new(Flat { name, tagged }));
    (
        (order, prop::option::of(mode()), prop::option::of(action())),
        prop::collection::vec(action(), 0..3),
        prop::collection::btree_map(".{0,3}", tagged(), 0..3),
        prop::option::of(flat),
        (either(), adjacent(), any::<u8>()),
        prop::collection::btree_map(any::<u32>(), payment(), 0..3),
        (tree(), json_value()),
    )
        .prop_map(|(first, actions, tagged, flat, second, numbers, (tree, any))| {
            let ((order, mode, action), (either, adjacent, n)) = (first, second);
            let (adjacent, nothing) = ((adjacent, n), ());
            #[rustfmt::skip]
            return Everything {
                order, mode, action, actions, tagged, flat, either, adjacent, numbers, tree, any, nothing,
            };
        })
}

proptest! {
    #[test]
    fn every_value_of_a_type_is_taken_as_it_is_serialised(sent in everything()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text = serde_json::to_string(&sent).unwrap();
        let taken = runtime.block_on(given::<Everything>(&text));
        let taken = taken.unwrap_or_else(|error| panic!("{text}: {error}"));
        prop_assert_eq!(taken, serde_json::to_value(&sent).unwrap());
        // As a list, and changed: the whole value is checked again.
        let text = json!({ "value": [sent] }).to_string();
        prop_assert!(runtime.block_on(given::<Vec<Everything>>(&text)).is_ok());
    }
}
