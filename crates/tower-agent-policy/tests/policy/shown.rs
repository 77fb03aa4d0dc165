//! Tools that a principal can never have called are not shown.

use serde_json::json;
use test_support::log::Log;
use tower_agent::{Agent, AgentRequest, ModelRequest, Tool};
use tower_agent_middleware::tool_search::ToolSearch;
use tower_agent_policy::Rulebook;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{ANN, SAM, User, asked_by, builder, calling, refund, rulebook, run, tools};

fn declared(request: &ModelRequest) -> Vec<String> {
    let tools = request.tools().iter();
    tools.map(|tool| tool.name().to_owned()).collect()
}

async fn shown(rules: &str, user: Option<&User>) -> Vec<String> {
    let model = calling([]);
    let agent = Agent::builder(model.clone())
        .tools(tools(&Log::default()))
        .global_callbacks(rulebook(rules).enforce())
        .build()
        .unwrap();
    let request = match user {
        Some(user) => asked_by(user),
        None => AgentRequest::new("?"),
    };
    run(&agent, request).await;
    declared(&model.requests()[0])
}

#[tokio::test]
async fn the_model_sees_what_the_user_might_have_called() {
    for (rules, user, tools) in [
        ("", Some(&ANN), vec![]),
        ("permit(principal, action, resource);", None, vec![]),
        (
            "permit(principal, action, resource);",
            Some(&ANN),
            vec!["refund", "look", "wipe"],
        ),
        (
            r#"permit(principal in Role::"support", action == Action::"refund", resource);"#,
            Some(&ANN),
            vec![],
        ),
        (
            r#"permit(principal in Role::"support", action == Action::"refund", resource);"#,
            Some(&SAM),
            vec!["refund"],
        ),
        // The arguments are not known yet.
        (
            r#"permit(principal, action == Action::"refund", resource) when { context.input.cents < 5 };"#,
            Some(&ANN),
            vec!["refund"],
        ),
        // Of a conjunction, what is known must hold.
        (
            r#"permit(principal, action == Action::"refund", resource)
               when { context.input.cents < 5 && principal in Role::"support" };"#,
            Some(&ANN),
            vec![],
        ),
        (
            r#"permit(principal, action == Action::"refund", resource)
               when { context.input.cents < 5 || principal in Role::"support" };"#,
            Some(&ANN),
            vec!["refund"],
        ),
        (
            r#"permit(principal, action, resource);
               forbid(principal in Role::"customer", action == Action::"wipe", resource);"#,
            Some(&ANN),
            vec!["refund", "look"],
        ),
        (
            r#"permit(principal, action, resource);
               forbid(principal, action == Action::"wipe", resource) when { context.session.calls > 0 };"#,
            Some(&ANN),
            vec!["refund", "look", "wipe"],
        ),
        // Somebody may say yes.
        (
            r#"permit(principal, action, resource);
               @ask("owner") forbid(principal, action == Action::"wipe", resource);"#,
            Some(&ANN),
            vec!["refund", "look", "wipe"],
        ),
        (
            r#"permit(principal, action, resource);
               forbid(principal, action, resource) unless { resource.effect == "pure" };"#,
            Some(&ANN),
            vec!["look"],
        ),
    ] {
        assert_eq!(shown(rules, user).await, tools, "{rules}");
    }
}

#[tokio::test]
async fn a_tool_that_is_not_shown_and_called_all_the_same_is_refused() {
    let log = Log::default();
    let model = calling([refund(1)]);
    let agent = Agent::builder(model.clone())
        .tools(tools(&log))
        .global_callbacks(
            rulebook(r#"permit(principal in Role::"support", action, resource);"#).enforce(),
        )
        .build()
        .unwrap();
    let seen = run(&agent, asked_by(&ANN)).await;
    assert!(declared(&model.requests()[0]).is_empty());
    assert_eq!(
        seen.results(),
        ["refused: `refund` exists, and the rules do not allow this call"]
    );
    assert!(log.take().is_empty());
}

/// The beginning of the prompt stays, whatever happens in the run.
#[tokio::test]
async fn each_step_of_a_run_shows_the_same_tools() {
    let book = rulebook("permit(principal, action, resource);");
    let changing = book.clone();
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("refund", refund(1).1),
        Turn::function(move |_: &ModelRequest| {
            // From here on nothing is permitted.
            changing.reload(Vec::<(String, String)>::new()).unwrap();
            Ok(tower_agent::ModelResponse::from_tool_calls([
                tower_agent::message::ToolCall::new("call_2", "look", json!({ "order": "o" })),
            ]))
        }),
        Turn::from_text("done"),
    ]);
    let agent = Agent::builder(model.clone())
        .tools(tools(&log))
        .global_callbacks(book.enforce())
        .build()
        .unwrap();
    let seen = run(&agent, asked_by(&ANN)).await;
    let requests = model.requests();
    for request in &requests {
        assert_eq!(declared(request), ["refund", "look", "wipe"]);
    }
    assert_eq!(log.take(), ["refund o-1 1"]);
    assert_eq!(seen.decisions()[1], "refused: not_permitted");
}

fn searched(log: &Log) -> (Rulebook, ToolSearch, Vec<Tool>) {
    let all = tools(log);
    let book = builder(&all)
        .rules(
            "r",
            r#"permit(principal in Role::"support", action, resource);
               permit(principal, action == Action::"look", resource);"#,
        )
        .build()
        .unwrap();
    (book, ToolSearch::new(all.clone()), all)
}

/// A search that shows what is forbidden, or a default deny that hides the search.
#[tokio::test]
async fn a_search_finds_and_loads_what_is_permitted_and_is_no_business_tool_itself() {
    for (user, found, made) in [
        (ANN, vec!["look"], vec!["look o"]),
        (SAM, vec!["refund", "look"], vec!["refund o-1 1", "look o"]),
    ] {
        let log = Log::default();
        let (book, search, _) = searched(&log);
        let model = ScriptedModel::new([
            Turn::tool("search_tools", json!({ "query": "pays money shows order" })),
            Turn::tool("load_tools", json!({ "names": ["refund", "look"] })),
            Turn::tool("refund", refund(1).1),
            Turn::tool("look", json!({ "order": "o" })),
            Turn::from_text("done"),
        ]);
        let agent = Agent::builder(model.clone())
            .tools(search.tools())
            .on_model(search)
            .global_callbacks(book.enforce())
            .build()
            .unwrap();
        let seen = run(&agent, asked_by(&user)).await;
        let results = seen.results();
        for name in ["refund", "look"] {
            let is_found = results[0].contains(&format!("\"{name}\""));
            assert_eq!(is_found, found.contains(&name), "{name}: {}", results[0]);
        }
        let requests = model.requests();
        assert_eq!(declared(&requests[0]), ["search_tools", "load_tools"]);
        assert_eq!(declared(&requests[2])[2..], found);
        assert_eq!(log.take(), made);
    }
}

/// Somebody else's tool with the name of one of ours is not exempt.
#[tokio::test]
async fn a_tool_of_others_does_not_pass_by_its_name() {
    let log = Log::default();
    let agent = Agent::builder(calling([("search_tools", json!({}))]))
        .tool(log.tool("search_tools"))
        .global_callbacks(rulebook("permit(principal, action, resource);").enforce())
        .build()
        .unwrap();
    let seen = run(&agent, asked_by(&SAM)).await;
    assert!(log.take().is_empty());
    assert_eq!(seen.decisions(), ["refused: unknown_tool"]);
}
