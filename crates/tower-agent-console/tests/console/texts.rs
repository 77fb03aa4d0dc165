//! The texts that wrappers changed, before and afterwards.

use serde_json::{Value, json};
use tower_agent::callback::{after_model, before_model, before_tool};
use tower_agent::{Action, Agent, ModelRequest, ModelResponse, Tool, ToolRequest};
use tower_agent_console::{Console, ConsoleService};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{json, latest, of_kind, service};

/// What the wrappers of the latest run changed in requests and responses.
async fn changed(service: &ConsoleService) -> Vec<Value> {
    let run = latest(service).await;
    let id = run["run"]["id"].as_str().unwrap();
    let mut changed = Vec::new();
    for entry in of_kind(&run, "wrapper") {
        let texts = json(service, &format!("/api/runs/{id}/content/{}", entry["n"])).await;
        for side in ["input", "output"] {
            changed.extend(texts[side].as_array().cloned().unwrap_or_default());
        }
    }
    changed
}

fn agent(console: &Console, redact: bool) -> Agent {
    let model = ScriptedModel::new([
        Turn::tool("mail", json!({ "value": "to jo@example.com" })),
        Turn::from_text("I wrote to jo@example.com."),
    ]);
    let mut agent = Agent::builder(model)
        .instructions("Write.")
        .tool(Tool::function("mail", "Mails.", |_: String| "sent"))
        .global_callbacks(console.watch())
        .on_model(
            before_model(|request: &mut ModelRequest| request.add_instructions("Be brief."))
                .named("brief"),
        )
        .on_model(
            after_model(|_, response: &ModelResponse| {
                if response.text().is_empty() {
                    return Action::Continue;
                }
                Action::Respond(ModelResponse::from_text(format!(
                    "{} Bye.",
                    response.text()
                )))
            })
            .named("polite"),
        )
        .on_tool(
            before_tool(|request: &mut ToolRequest| {
                let value = &mut request.arguments_mut()["value"];
                *value = format!("{}, now", value.as_str().unwrap()).into();
            })
            .named("urgent"),
        );
    if redact {
        let email = Redact::new([Detector::email()]).unwrap();
        agent = agent.global_callbacks(email.restore_when(|_| true));
    }
    agent.build().unwrap()
}

#[tokio::test]
async fn what_a_wrapper_changed_is_shown_before_and_afterwards() {
    let console = Console::new().record_content();
    let service = service(&console);
    agent(&console, false).run("?").await.unwrap();
    let changed = changed(&service).await;
    let of = |field: &str| {
        let change = changed.iter().rfind(|change| change["field"] == field);
        let change = change.unwrap_or_else(|| panic!("no {field}: {changed:?}"));
        [&change["before"], &change["after"]].map(|text| text.as_str().unwrap().to_owned())
    };
    assert_eq!(of("instructions"), ["Write.", "Write.\n\nBe brief."]);
    let [before, after] = of("text");
    assert_eq!(after, format!("{before} Bye."));
    let [before, after] = of("arguments");
    assert!(before.contains("jo@example.com") && after.contains(", now"));
}

#[tokio::test]
async fn texts_are_kept_with_content_alone() {
    let console = Console::new();
    let service = service(&console);
    agent(&console, false).run("?").await.unwrap();
    assert_eq!(changed(&service).await, [json!(null); 0]);
    assert!(!latest(&service).await.to_string().contains("Be brief."));
}

#[tokio::test]
async fn what_is_inside_a_redaction_is_not_shown() {
    let console = Console::new().record_content();
    let service = service(&console);
    agent(&console, true).run("?").await.unwrap();
    assert_eq!(changed(&service).await, [json!(null); 0]);
    let run = latest(&service).await;
    let told = json!(of_kind(&run, "wrapper")).to_string();
    assert!(told.contains("instructions"), "that and how much: {told}");
}
