//! What a call comes to.

use std::time::{Duration, UNIX_EPOCH};

use futures::StreamExt;
use serde_json::{Value, json};
use test_support::log::Log;
use tower_agent::callback::{Bundle, before_tool};
use tower_agent::message::{Arguments, ToolCall};
use tower_agent::{Agent, AgentRequest, ModelResponse, Request, ToolRequest};
use tower_agent_policy::Rulebook;
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{ANN, SAM, answered, asked_by, builder, calling, refund, rulebook, run, tools};

const RULES: &str = r#"
@id("small-refunds")
permit(principal, action == Action::"refund", resource)
when { context.input.cents <= 500 };

@id("support-refunds")
permit(principal in Role::"support", action == Action::"refund", resource);

@id("look")
permit(principal, action in Action::"effect:pure", resource);

@id("never-more")
@tell("Refunds above 100000 are made by nobody here.")
forbid(principal, action == Action::"refund", resource)
when { context.input.cents > 100000 };
"#;

fn shop(model: &ScriptedModel, log: &Log, book: &Rulebook) -> Agent {
    Agent::builder(model.clone())
        .tools(tools(log))
        .global_callbacks(book.enforce())
        .build()
        .unwrap()
}

#[tokio::test]
async fn calls_are_made_as_the_rules_say() {
    let cases = [
        (
            ANN,
            500,
            "refund o-1 500",
            "refunded 500",
            "allowed small-refunds",
        ),
        (
            ANN,
            501,
            "",
            "refused: `refund` exists, and the rules do not allow this call",
            "refused: not_permitted",
        ),
        (
            SAM,
            501,
            "refund o-1 501",
            "refunded 501",
            "allowed support-refunds",
        ),
        (
            SAM,
            100_001,
            "",
            "refused: Refunds above 100000 are made by nobody here.",
            "refused: forbidden never-more",
        ),
    ];
    for (user, cents, made, told, decision) in cases {
        let log = Log::default();
        let model = calling([refund(cents)]);
        let seen = run(&shop(&model, &log, &rulebook(RULES)), asked_by(&user)).await;
        assert_eq!(log.take().join(""), made);
        assert_eq!(seen.results(), [told]);
        assert_eq!(seen.decisions(), [decision]);
        assert_eq!(seen.events[0]["call"], "agent/m1.0");
        assert!(!seen.events[0].to_string().contains("o-1"), "no values");
    }
}

#[tokio::test]
async fn without_a_principal_nothing_is_called() {
    let log = Log::default();
    let model = calling([refund(1)]);
    let agent = shop(&model, &log, &rulebook(RULES));
    // What clients and tools can write is nobody's word.
    let request = AgentRequest::new("?").with_state(tower_agent::State::default());
    request
        .context()
        .state()
        .set("user", json!({ "name": "sam", "role": "support" }));
    let seen = run(&agent, request).await;
    assert!(log.take().is_empty());
    assert_eq!(seen.decisions(), ["refused: no_principal"]);
}

#[tokio::test]
async fn a_tool_of_which_no_rule_has_heard_is_refused_otherwise_than_one_that_is_not_there() {
    let log = Log::default();
    let model = calling([("brew", json!({})), ("tea", json!({}))]);
    let agent = Agent::builder(model)
        .tool(log.tool("brew"))
        .global_callbacks(rulebook(RULES).enforce())
        .build()
        .unwrap();
    let seen = run(&agent, asked_by(&SAM)).await;
    assert!(log.take().is_empty());
    let results = seen.results();
    assert_eq!(
        results[0],
        "refused: it could not be decided whether the rules allow `brew`"
    );
    assert!(results[1].starts_with("unknown tool"), "{}", results[1]);
    assert_eq!(seen.decisions(), ["refused: unknown_tool"]);
}

#[tokio::test]
async fn arguments_that_a_callback_changes_are_decided_again() {
    let log = Log::default();
    let model = calling([refund(1)]);
    let agent = Agent::builder(model)
        .tools(tools(&log))
        .on_tool(before_tool(|request: &mut ToolRequest| {
            request.arguments_mut()["cents"] = json!(900);
        }))
        .global_callbacks(rulebook(RULES).enforce())
        .build()
        .unwrap();
    let seen = run(&agent, asked_by(&ANN)).await;
    assert!(log.take().is_empty());
    assert_eq!(
        seen.decisions(),
        ["allowed small-refunds", "refused: not_permitted"]
    );
}

/// As a redaction does, which puts the real text in the place of a placeholder there.
#[tokio::test]
async fn what_stands_directly_around_the_tool_is_decided_about_wherever_it_is_registered() {
    for is_first in [true, false] {
        let log = Log::default();
        let change = || {
            Bundle::new().innermost_tool(before_tool(|request: &mut ToolRequest| {
                request.arguments_mut()["cents"] = json!(900);
            }))
        };
        let agent = Agent::builder(calling([refund(1)])).tools(tools(&log));
        let rules = rulebook(RULES).enforce();
        let agent = if is_first {
            agent.global_callbacks(change()).global_callbacks(rules)
        } else {
            agent.global_callbacks(rules).callbacks(change())
        };
        let seen = run(&agent.build().unwrap(), asked_by(&ANN)).await;
        assert!(log.take().is_empty());
        assert_eq!(seen.decisions()[1], "refused: not_permitted");
    }
}

#[tokio::test]
async fn what_was_decided_on_is_what_the_tool_gets() {
    // A key twice, of which a parser may take either.
    let log = Log::default();
    let arguments = r#"{"order": "o-1", "cents": 900, "cents": 5}"#;
    let mut call = ToolCall::new("call_1", "refund", json!({}));
    call.arguments = Arguments::from_text(arguments);
    let model = ScriptedModel::new([
        Turn::response(ModelResponse::from_tool_calls([call])),
        Turn::from_text("done"),
    ]);
    let seen = run(&shop(&model, &log, &rulebook(RULES)), asked_by(&ANN)).await;
    assert_eq!(log.take(), ["refund o-1 5"]);
    assert_eq!(seen.decisions(), ["allowed small-refunds"]);
}

#[tokio::test]
async fn arguments_that_no_rule_can_be_about_are_refused_by_name() {
    for (arguments, told) in [
        (
            json!({ "order": "o-1", "cents": 5, "amount": 900 }),
            "`/amount`: the tool does not declare it, so no rule can be about it",
        ),
        (
            json!({ "order": "o-1" }),
            "`/cents`: it is required and left out",
        ),
        (
            json!({ "order": "o-1", "cents": 5.5 }),
            "`/cents`: it is not a whole number that rules can compare",
        ),
        (
            json!({ "order": { "__entity": { "type": "User", "id": "sam" } }, "cents": 5 }),
            "`/order`: it is not a text",
        ),
    ] {
        let log = Log::default();
        let model = calling([("refund", arguments)]);
        let seen = run(&shop(&model, &log, &rulebook(RULES)), asked_by(&ANN)).await;
        assert!(log.take().is_empty());
        let text = format!("refused: the rules for `refund` cannot be applied: {told}");
        assert_eq!(seen.results(), [text]);
        assert_eq!(seen.decisions(), ["refused: misfit"]);
    }
}

const ASKING: &str = r#"
@id("refunds") permit(principal, action == Action::"refund", resource);
@id("large") @ask("support")
forbid(principal, action == Action::"refund", resource) when { context.input.cents > 500 };
@id("huge") @ask("finance")
forbid(principal, action == Action::"refund", resource) when { context.input.cents > 5000 };
@id("never")
forbid(principal, action == Action::"refund", resource) when { context.input.cents > 50000 };
@id("wipes") @ask("owner") permit(principal, action == Action::"wipe", resource);
"#;

#[tokio::test]
async fn a_role_is_asked_and_its_answer_decides() {
    for (answer, made, decision) in [
        (
            json!({ "approved": true }),
            vec!["refund o-1 900"],
            "approved large",
        ),
        (json!({ "approved": false }), vec![], "rejected large"),
    ] {
        let log = Log::default();
        let model = calling([refund(900)]);
        let agent = shop(&model, &log, &rulebook(ASKING));
        let paused = run(&agent, asked_by(&ANN)).await;
        assert_eq!(paused.decisions(), ["asked large"]);
        assert!(log.take().is_empty());
        let open = &paused.response().interrupts()[0];
        assert_eq!(open.answerer.role(), Some("support"));
        assert_eq!(open.reason, "tool_call");
        assert_eq!(
            open.payload,
            json!({ "tool": "refund", "arguments": { "order": "o-1", "cents": 900 } })
        );
        let done = run(&agent, answered(paused.response(), &ANN, answer)).await;
        assert_eq!(log.take(), made);
        assert_eq!(done.decisions(), [decision]);
    }
}

#[tokio::test]
async fn each_role_that_a_rule_names_is_asked() {
    let log = Log::default();
    let model = calling([refund(9000)]);
    let agent = shop(&model, &log, &rulebook(ASKING));
    let mut seen = run(&agent, asked_by(&ANN)).await;
    for role in ["support", "finance"] {
        assert_eq!(seen.decisions(), ["asked large huge"]);
        let open = seen.response().interrupts();
        assert_eq!(open[0].answerer.role(), Some(role));
        assert!(log.take().is_empty());
        let yes = json!({ "approved": true });
        seen = run(&agent, answered(seen.response(), &ANN, yes)).await;
    }
    assert_eq!(seen.decisions(), ["approved large huge"]);
    assert_eq!(log.take(), ["refund o-1 9000"]);
}

#[tokio::test]
async fn a_permit_can_ask_as_well() {
    let log = Log::default();
    let model = calling([("wipe", json!({}))]);
    let agent = shop(&model, &log, &rulebook(ASKING));
    let paused = run(&agent, asked_by(&ANN)).await;
    assert_eq!(paused.decisions(), ["asked wipes"]);
    let yes = json!({ "approved": true });
    let done = run(&agent, answered(paused.response(), &ANN, yes)).await;
    assert_eq!(done.decisions(), ["approved wipes"]);
    assert_eq!(log.take(), ["wipe"]);
}

#[tokio::test]
async fn a_forbid_that_asks_nobody_outweighs_one_that_asks() {
    let log = Log::default();
    let model = calling([refund(90_000)]);
    let agent = shop(&model, &log, &rulebook(ASKING));
    let seen = run(&agent, asked_by(&ANN)).await;
    assert_eq!(seen.decisions(), ["refused: forbidden never"]);
    assert!(log.take().is_empty());
}

/// An approver writes what the rules forbid.
#[tokio::test]
async fn what_an_approver_writes_is_decided_again() {
    for (cents, decisions, made) in [
        (800, vec!["approved large"], vec!["refund o-1 800"]),
        (90_000, vec!["refused: forbidden never"], vec![]),
        // Another role has to be asked about it, which has seen nothing yet.
        (9_000, vec!["asked large huge"], vec![]),
        (100, vec!["allowed refunds"], vec!["refund o-1 100"]),
    ] {
        let log = Log::default();
        let model = calling([refund(900)]);
        let tools = tools(&log);
        let book = crate::world::builder(&tools)
            .rules("shop.cedar", ASKING)
            .asking(|approval| approval.allow_edits())
            .build()
            .unwrap();
        let agent = shop(&model, &log, &book);
        let paused = run(&agent, asked_by(&ANN)).await;
        let edit = json!({
            "approved": true,
            "editedArgs": { "order": "o-1", "cents": cents },
        });
        let done = run(&agent, answered(paused.response(), &ANN, edit)).await;
        assert_eq!(done.decisions(), decisions, "{cents}");
        assert_eq!(log.take(), made);
        if let [made] = &done.results()[..]
            && made.starts_with("refunded")
        {
            assert!(
                made.contains("The approver changed the arguments"),
                "{made}"
            );
        }
    }
}

/// The rules change while a person thinks.
#[tokio::test]
async fn a_new_forbid_outlives_an_old_yes() {
    let log = Log::default();
    let model = calling([refund(900)]);
    let book = rulebook(ASKING);
    let agent = shop(&model, &log, &book);
    let paused = run(&agent, asked_by(&ANN)).await;
    let stricter = format!(
        "{ASKING}\n@id(\"closed\") forbid(principal, action == Action::\"refund\", resource);"
    );
    book.reload([("shop.cedar", stricter)]).unwrap();
    let yes = json!({ "approved": true });
    let done = run(&agent, answered(paused.response(), &ANN, yes)).await;
    assert_eq!(done.decisions(), ["refused: forbidden closed"]);
    assert_eq!(done.events[0]["set"], 2);
    assert!(log.take().is_empty());
}

#[tokio::test]
async fn an_observed_rulebook_reports_and_changes_nothing() {
    let log = Log::default();
    let model = calling([refund(90_000), refund(900), ("wipe", json!({}))]);
    let agent = Agent::builder(model.clone())
        .tools(tools(&log))
        .global_callbacks(rulebook(ASKING).observe())
        .build()
        .unwrap();
    let seen = run(&agent, AgentRequest::new("?").with_extension(ANN)).await;
    assert_eq!(
        seen.decisions(),
        ["refused: forbidden never", "asked large", "asked wipes"]
    );
    assert!(seen.events.iter().all(|event| event["enforced"] == false));
    assert_eq!(log.take(), ["refund o-1 90000", "refund o-1 900", "wipe"]);
    assert_eq!(model.requests()[0].tools().len(), 3);
}

#[tokio::test]
async fn a_shadow_set_says_where_it_would_decide_otherwise() {
    let log = Log::default();
    let model = calling([refund(1), refund(900)]);
    let all = tools(&log);
    let book = crate::world::builder(&all)
        .rules("shop.cedar", RULES)
        .shadow_rules("new.cedar", ASKING)
        .build()
        .unwrap();
    let seen = run(&shop(&model, &log, &book), asked_by(&SAM)).await;
    assert_eq!(log.take(), ["refund o-1 1", "refund o-1 900"]);
    assert_eq!(seen.events[0]["shadow"], Value::Null);
    assert_eq!(
        seen.events[1]["shadow"],
        json!({ "decision": "asked", "roles": ["support"], "policies": ["large"] })
    );
}

#[tokio::test]
async fn calls_that_are_made_at_once_have_other_numbers() {
    let log = Log::default();
    let (_, arguments) = refund(1);
    let five = Turn::tool("refund", arguments.clone())
        .and_tool("refund", arguments.clone())
        .and_tool("refund", arguments.clone())
        .and_tool("refund", arguments.clone())
        .and_tool("refund", arguments);
    let model = ScriptedModel::new([five, Turn::from_text("done")]);
    let book = rulebook(
        r#"permit(principal, action == Action::"refund", resource) when { context.session.calls < 3 };"#,
    );
    let seen = run(&shop(&model, &log, &book), asked_by(&ANN)).await;
    assert_eq!(log.take().len(), 3);
    assert_eq!(seen.decisions().len(), 5);
}

#[tokio::test]
async fn calls_are_counted_for_the_run_and_for_the_conversation() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("refund", refund(1).1),
        Turn::tool("refund", refund(1).1),
        Turn::tool("refund", refund(1).1),
        Turn::from_text("done"),
        Turn::tool("refund", refund(1).1),
        Turn::tool("refund", refund(1).1),
        Turn::tool("refund", refund(1).1),
        Turn::from_text("done"),
    ]);
    let book = rulebook(
        r#"permit(principal, action == Action::"refund", resource)
           when { context.session.calls < 2 && context.session.conversation_calls < 3 };"#,
    );
    let agent = shop(&model, &log, &book);
    let first = run(&agent, asked_by(&ANN)).await;
    assert_eq!(log.take().len(), 2);
    let again = AgentRequest::resume(first.response().checkpoint())
        .with_message("Again.")
        .with_extension(ANN);
    run(&agent, again).await;
    assert_eq!(log.take().len(), 1);
}

/// Each fact of a run and of a tool that a rule can be about: which of two calls it permits, if the
/// run is streamed or is not.
#[tokio::test]
async fn a_rule_reads_what_is_known_of_the_run_and_of_the_tool() {
    let both = ["look o", "look o"];
    let none = [""; 0];
    let second = ["look o"];
    for (fact, run_made, stream_made) in [
        ("context.session.streamed", &none[..], &both[..]),
        ("context.session.iteration == 1", &second, &second),
        (r#"context.session.agent == "clerk""#, &both, &both),
        (
            r#"context.session.time == datetime("2025-01-01T12:00:00Z")"#,
            &both,
            &both,
        ),
        (r#"resource == Tool::"look""#, &both, &both),
        (r#"resource.effect == "pure""#, &both, &both),
        (r#"resource.effect == "mutating""#, &none, &none),
        ("resource.agent || resource.others", &none, &none),
    ] {
        let log = Log::default();
        let rule =
            format!("permit(principal, action == Action::\"look\", resource) when {{ {fact} }};");
        let book = builder(&tools(&log))
            .clock(|| UNIX_EPOCH + Duration::from_secs(1_735_732_800))
            .rules("shop.cedar", rule)
            .build()
            .unwrap();
        let agent = || {
            let look = || ("look", json!({ "order": "o" }));
            Agent::builder(calling([look(), look()]))
                .name("clerk")
                .tools(tools(&log))
                .global_callbacks(book.enforce())
                .build()
                .unwrap()
        };
        agent().run(asked_by(&ANN)).await.unwrap();
        assert_eq!(log.take(), run_made, "{fact}");
        let stream = agent().stream(asked_by(&ANN));
        assert_ne!(stream.count().await, 0);
        assert_eq!(log.take(), stream_made, "{fact}, streamed");
    }
}
