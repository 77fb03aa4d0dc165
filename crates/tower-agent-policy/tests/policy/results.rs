//! Whether the result of a call may be read.

use serde_json::json;
use test_support::log::Log;
use tower_agent::agent::ToolAnswer;
use tower_agent::callback::{after_tool, before_tool, wrap_tool};
use tower_agent::{
    Action, Agent, AgentBuilder, BoxError, Effect, Json, Message, Tool, ToolRequest, ToolResponse,
};
use tower_agent_policy::{Rulebook, RulebookBuilder};
use tower_agent_test::ScriptedModel;

use crate::world::{ANN, SAM, asked_by, builder, calling, run};

const SECRET: &str = "SECRET-4711";

#[derive(serde::Serialize)]
struct Account {
    owner: String,
    iban: String,
}

fn tools() -> Vec<Tool> {
    vec![
        Tool::function("read", "", |()| SECRET).effect(Effect::Pure),
        Tool::function("account", "", |()| {
            Json(Account {
                owner: "ann".to_owned(),
                iban: SECRET.to_owned(),
            })
        })
        .effect(Effect::Pure),
        Tool::function("fail", "", |()| Err::<String, _>(BoxError::from(SECRET)))
            .effect(Effect::Pure),
    ]
}

const RULES: &str = r#"
permit(principal, action in Action::"effect:pure", resource);
@id("open") permit(principal, action == Action::"result:account", resource);
@id("support-reads") permit(principal in Role::"support", action in Action::"results:all", resource);
@id("no-secrets") @tell("The account is closed.")
forbid(principal in Role::"customer", action == Action::"result:account", resource)
when { context.output.value.owner == "ann" };
"#;

fn rules() -> RulebookBuilder {
    let account = json!({
        "type": "object",
        "properties": { "owner": { "type": "string" }, "iban": { "type": "string" } },
        "required": ["owner", "iban"],
    });
    builder(&tools())
        .output("account", account)
        .rules("shop.cedar", RULES)
}

fn agent(model: &ScriptedModel, book: &Rulebook) -> AgentBuilder {
    Agent::builder(model.clone())
        .tools(tools())
        .global_callbacks(book.enforce())
}

#[tokio::test]
async fn a_result_reaches_the_model_as_the_rules_say() {
    let book = rules().build().unwrap();
    for (user, tool, is_shown, last) in [
        (ANN, "read", false, "refused: not_permitted"),
        (ANN, "account", false, "refused: forbidden no-secrets"),
        (ANN, "fail", false, "refused: not_permitted"),
        (SAM, "read", true, "allowed support-reads"),
        (SAM, "account", true, "allowed open support-reads"),
        (SAM, "fail", true, "allowed support-reads"),
    ] {
        let model = calling([(tool, json!({}))]);
        let seen = run(&agent(&model, &book).build().unwrap(), asked_by(&user)).await;
        let read = serde_json::to_string(model.requests()[1].messages()).unwrap();
        assert_eq!(read.contains(SECRET), is_shown, "{tool}: {read}");
        assert_eq!(seen.decisions().last().unwrap(), last, "{tool}");
        let about: Vec<_> = seen.events.iter().map(|event| &event["about"]).collect();
        assert_eq!(about, ["call", "result"], "{tool}");
        assert!(!format!("{:?}", seen.events).contains(SECRET));
    }
}

/// Without a rule that names results, a call that may be made may be read.
#[tokio::test]
async fn rules_about_calls_alone_say_nothing_about_results() {
    let book = builder(&tools())
        .rules("r", "permit(principal, action, resource);")
        .build()
        .unwrap();
    let model = calling([("read", json!({}))]);
    let seen = run(&agent(&model, &book).build().unwrap(), asked_by(&ANN)).await;
    assert_eq!(seen.results(), [SECRET]);
    assert_eq!(seen.events.len(), 1);
}

/// The last writer: a callback further outside, or the messages that are shown.
#[tokio::test]
async fn what_others_make_of_a_result_is_decided_as_well() {
    let book = rules().build().unwrap();
    type Build = fn(AgentBuilder) -> AgentBuilder;
    let wrote: Build = |agent| {
        agent.on_tool(after_tool(|_, _: &ToolResponse| {
            Action::Respond(ToolResponse::new(SECRET))
        }))
    };
    let shows: Build = |agent| {
        agent.tool_result_messages(|answer: ToolAnswer| {
            vec![answer.default, Message::user(SECRET).with_id("shown")]
        })
    };
    for build in [wrote, shows] {
        for (user, is_shown) in [(ANN, false), (SAM, true)] {
            let model = calling([("read", json!({}))]);
            let agent = build(agent(&model, &book)).build().unwrap();
            let seen = run(&agent, asked_by(&user)).await;
            assert_eq!(seen.response().text(), "done");
            let read = serde_json::to_string(model.requests()[1].messages()).unwrap();
            assert_eq!(read.contains(SECRET), is_shown, "{read}");
        }
    }
}

/// An answer in place of the tool is no way around the rules for its call.
#[tokio::test]
async fn an_answer_of_somebody_else_is_refused_where_the_call_would_be() {
    let log = Log::default();
    let tools = crate::world::tools(&log);
    let book = builder(&tools)
        .rules(
            "r",
            r#"permit(principal in Role::"support", action, resource);"#,
        )
        .build()
        .unwrap();
    let answering = || {
        tower_agent::callback::Bundle::new().outermost_tool(before_tool(|_| {
            Action::Respond(ToolResponse::new("an answer from a cache"))
        }))
    };
    for (user, told) in [
        (
            ANN,
            "refused: `refund` exists, and the rules do not allow this call",
        ),
        (SAM, "an answer from a cache"),
    ] {
        let agent = Agent::builder(calling([crate::world::refund(1)]))
            .tools(tools.clone())
            .global_callbacks(answering())
            .global_callbacks(book.enforce())
            .build()
            .unwrap();
        let seen = run(&agent, asked_by(&user)).await;
        assert_eq!(seen.results(), [told]);
        assert_eq!(seen.events.len(), 1);
        assert!(log.take().is_empty());
    }
}

#[tokio::test]
async fn a_shadow_set_about_results_withholds_none() {
    let book = builder(&tools())
        .rules("r", "permit(principal, action, resource);")
        .shadow_rules(
            "s",
            r#"@id("new") forbid(principal, action in Action::"results:all", resource);"#,
        )
        .build()
        .unwrap();
    let model = calling([("read", json!({}))]);
    let seen = run(&agent(&model, &book).build().unwrap(), asked_by(&ANN)).await;
    assert_eq!(seen.results(), [SECRET]);
    assert_eq!(seen.events[1]["decision"], "allowed");
    assert_eq!(seen.events[1]["shadow"]["policies"], json!(["new"]));
}

/// The second of two attempts is refused, and what the first has brought is left.
#[tokio::test]
async fn what_an_attempt_has_brought_is_decided_about_although_the_next_is_refused() {
    let model = calling([("read", json!({}))]);
    let changing = rules().build().unwrap();
    let book = changing.clone();
    let twice = wrap_tool(move |request: ToolRequest, mut next| {
        let changing = changing.clone();
        async move {
            let first = next.run(request.clone()).await;
            let stricter =
                format!("{RULES} forbid(principal, action == Action::\"read\", resource);");
            changing.reload([("shop.cedar", stricter)]).unwrap();
            next.run(request).await?;
            first
        }
    });
    let agent = agent(&model, &book).tool_layer(twice).build().unwrap();
    run(&agent, asked_by(&ANN)).await;
    let read = serde_json::to_string(model.requests()[1].messages()).unwrap();
    assert!(!read.contains(SECRET), "{read}");
}
