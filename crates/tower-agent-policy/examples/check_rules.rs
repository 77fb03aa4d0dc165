//! Checks rules without running an agent, as an editor or a CI does, and asks them about calls.
//!
//! `cargo run -p tower-agent-policy --example check_rules`

use std::fs;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower_agent::tool::ToolDeclaration;
use tower_agent::{BoxError, Effect};
use tower_agent_policy::{Case, Principal, Rulebook, RulebookBuilder};

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Order {
    id: String,
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Refund {
    order: String,
    cents: u32,
}

#[derive(Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Export {
    to: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// The declarations are enough: no tool is called.
fn builder(schema: &str) -> RulebookBuilder {
    let tools = [
        ToolDeclaration::new("order", "Shows an order.")
            .with_arguments::<Order>()
            .with_effect(Effect::Pure),
        ToolDeclaration::new("refund", "Pays money back.").with_arguments::<Refund>(),
        ToolDeclaration::new("read_mail", "Reads the mail.")
            .with_arguments::<Nothing>()
            .with_effect(Effect::Pure),
        ToolDeclaration::new("export", "Sends all orders to somebody.").with_arguments::<Export>(),
    ];
    Rulebook::builder()
        .schema("shop.cedarschema", schema)
        .tools(tools.map(Into::into).iter())
        .principals(["User"], |_| None)
        .attributes("Facts", |_| Err("there is no run".into()))
        .flow()
}

fn main() -> Result<(), BoxError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let schema = fs::read_to_string(folder.join("shop.cedarschema"))?;
    let text = fs::read_to_string(folder.join("shop.cedar"))?;
    let rules = builder(&schema).rules("shop.cedar", &*text).build()?;
    println!("{}", rules.schema());

    // What would the rules say?
    let ann = Principal::new("User", "ann").within("Role", "customer");
    let refund = |cents: u32| {
        Case::new(
            ann.clone(),
            "refund",
            json!({ "order": "ann-1", "cents": cents }),
        )
        .attributes(json!({ "own_order": true, "hour": 12 }))
        .flow(false, [])
    };
    rules.decide(&refund(900)).assert_allowed();
    rules.decide(&refund(9_000)).assert_asks("support");
    let at_night = refund(9_000).attributes(json!({ "own_order": true, "hour": 23 }));
    rules.decide(&at_night).assert_refused_by("at-night");

    // A misspelt argument.
    let misspelt = text.replace("context.input.cents <= 5000", "context.input.cent <= 5000");
    let error = builder(&schema).rules("shop.cedar", misspelt).build();
    println!("{}", error.err().ok_or("this must not be loaded")?);
    Ok(())
}
