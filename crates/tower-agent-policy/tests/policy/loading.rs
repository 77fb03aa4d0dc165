//! What is said about rules and schemas when they are loaded.

use serde_json::{Value, json};
use test_support::log::Log;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{Tool, ToolResponse};
use tower_agent_policy::{PolicyError, Rulebook};

use crate::world::{builder, rulebook, tools};

fn problems(rules: &str) -> String {
    let tools = tools(&Log::default());
    let error = builder(&tools)
        .rules("shop.cedar", rules)
        .build()
        .unwrap_err();
    error.to_string()
}

#[test]
fn a_wrong_rule_is_an_error_with_its_place_and_the_nearest_right_name() {
    for (rules, line, names) in [
        (
            "\n\npermit(principal, action == Action::\"refnud\", resource);",
            3,
            vec!["refnud", "refund"],
        ),
        (
            "permit(principal, action == Action::\"refund\", resource)\nwhen {\n context.input.cent > 5 };",
            3,
            vec!["cent", "cents"],
        ),
        (
            "permit(principal, action == Action::\"refund\", resource)\nwhen { context.input.cents == \"5\" };",
            2,
            vec!["String", "Long"],
        ),
        (
            "permit(principal, action == Action::\"refund\", resource)\nwhen { context.input.note == \"x\" };",
            2,
            vec!["note", "has"],
        ),
        (
            "permit(principal == Usr::\"ann\", action, resource);",
            1,
            vec!["Usr", "User"],
        ),
        (
            "permit(principal, action == Action::\"refund\", resource)\nwhen { false };",
            1,
            vec!["impossible"],
        ),
        ("permit(principal, action, resource)\nwhen { ;", 2, vec![]),
        (
            "@id(\"a\") permit(principal, action, resource);\n@id(\"a\") forbid(principal, action, resource);",
            2,
            vec!["two policies have the id `a`"],
        ),
        (
            "\n@aks(\"support\") permit(principal, action, resource);",
            2,
            vec!["`@aks`", "`@ask`"],
        ),
        (
            "@ask(\"\") permit(principal, action, resource);",
            1,
            vec!["empty"],
        ),
        (
            "permit(principal == ?principal, action, resource);",
            0,
            vec!["template"],
        ),
        (
            "@ask(\"x\") permit(principal, action == Action::\"result:look\", resource);",
            1,
            vec!["nobody is asked about a result"],
        ),
        // A list of texts is no list of entities: this would never be true.
        (
            "forbid(principal, action == Action::\"refund\", resource)\nwhen { principal in [\"ann\"] };",
            2,
            vec!["Set"],
        ),
    ] {
        let text = problems(rules);
        if line > 0 {
            assert!(
                text.contains(&format!("shop.cedar:{line}: ")),
                "{rules}: {text}"
            );
        }
        for name in names {
            assert!(text.contains(name), "{rules}: {text}");
        }
    }
}

#[test]
fn a_text_may_be_in_two_alphabets() {
    let rules = "permit(principal, action == Action::\"refund\", resource)\nwhen { context.input.order == \"ООО Acme\" };";
    assert_eq!(rulebook(rules).count(), 1);
}

#[test]
fn every_problem_is_told_at_once() {
    let text = problems(
        "permit(principal, action == Action::\"a\", resource);\npermit(principal, action == Action::\"b\", resource);",
    );
    assert!(
        text.contains("shop.cedar:1: ") && text.contains("shop.cedar:2: "),
        "{text}"
    );
}

#[test]
fn rules_that_are_wrong_change_nothing() {
    let book = rulebook("@id(\"one\") permit(principal, action, resource);");
    let wrong = book.reload([(
        "new.cedar",
        "permit(principal, action == Action::\"x\", resource);",
    )]);
    assert!(wrong.unwrap_err().to_string().contains("new.cedar:1: "));
    assert_eq!(book.count(), 1);
    book.reload([
        ("a.cedar", "permit(principal, action, resource);"),
        ("b.cedar", "forbid(principal, action, resource);"),
    ])
    .unwrap();
    assert_eq!(book.count(), 2);
}

fn declared(parameters: Value) -> Result<Rulebook, PolicyError> {
    let declaration = ToolDeclaration::new("tool", "").with_parameters(parameters);
    let service = tower::service_fn(|_: tower_agent::ToolRequest| async {
        Ok::<_, tower_agent::Error>(ToolResponse::new("done"))
    });
    let tools = [Tool::service(declaration, service)];
    builder(&tools).build()
}

fn with(argument: Value) -> Value {
    json!({ "type": "object", "properties": { "x": argument } })
}

#[test]
fn what_cedar_cannot_express_is_told_by_tool_and_argument() {
    for (schema, why) in [
        (
            json!({ "type": ["string", "integer"] }),
            "one of several types",
        ),
        (
            json!({ "anyOf": [{ "type": "string" }, { "type": "integer" }] }),
            "one of several types",
        ),
        (json!(true), "may be anything"),
        (json!({}), "may be anything"),
        (json!({ "type": "array" }), "may be anything"),
        (
            json!({ "type": "array", "prefixItems": [{ "type": "string" }] }),
            "`prefixItems`",
        ),
        (
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
            "may have any names",
        ),
        (json!({ "enum": ["a", 1] }), "several types"),
        (
            json!({ "type": "array", "items": { "type": ["string", "null"] } }),
            "may be `null`",
        ),
        (json!({ "$ref": "#/$defs/none" }), "leads nowhere"),
    ] {
        let text = declared(with(schema.clone())).unwrap_err().to_string();
        assert!(text.contains("tool `tool`"), "{schema}: {text}");
        assert!(text.contains("argument `x"), "{schema}: {text}");
        assert!(text.contains(why), "{schema}: {text}");
        assert!(
            text.contains("without_argument(\"tool\", \"x\")"),
            "{schema}: {text}"
        );
    }
    let tree = json!({
        "type": "object",
        "properties": { "x": { "$ref": "#/$defs/node" } },
        "$defs": { "node": {
            "type": "object",
            "properties": { "next": { "anyOf": [{ "$ref": "#/$defs/node" }, { "type": "null" }] } },
        } },
    });
    let text = declared(tree).unwrap_err().to_string();
    assert!(text.contains("contains itself"), "{text}");
}

#[test]
fn the_types_of_arguments_are_those_of_their_schemas() {
    let book = declared(json!({
        "type": "object",
        "properties": {
            "text": { "type": "string" },
            "count": { "type": "integer" },
            "price": { "type": "number" },
            "is": { "type": "boolean" },
            "kind": { "enum": ["a", "b"] },
            "one": { "oneOf": [{ "const": "a" }, { "type": "string", "const": "b" }] },
            "maybe": { "anyOf": [{ "$ref": "#/$defs/place" }, { "type": "null" }] },
            "none": { "type": ["string", "null"] },
            "list": { "type": "array", "items": { "type": "integer" } },
            "odd \"name\"": { "type": "string" },
        },
        "required": ["text", "none"],
        "$defs": { "place": { "type": "object", "properties": { "x": { "type": "integer" } }, "required": ["x"] } },
    }))
    .unwrap();
    let input = book
        .schema()
        .lines()
        .find(|line| line.contains("input: "))
        .unwrap()
        .trim();
    assert_eq!(
        input,
        r#"input: {"count"?: Long, "is"?: Bool, "kind"?: String, "list"?: Set<Long>, "maybe"?: {"x": Long}, "none"?: String, "odd \"name\""?: String, "one"?: String, "price"?: decimal, "text": String},"#
    );
}

#[test]
fn an_argument_that_is_left_out_must_be_one() {
    let tools = tools(&Log::default());
    let error = builder(&tools).without_argument("refund", "ordr").build();
    let text = error.unwrap_err().to_string();
    assert!(text.contains("did you mean `order`?"), "{text}");
    let error = builder(&tools).without_argument("refnd", "order").build();
    let text = error.unwrap_err().to_string();
    assert!(text.contains("did you mean `refund`?"), "{text}");
}
