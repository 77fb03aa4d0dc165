//! Questions about calls that break a rule.

use serde_json::json;
use tower_agent::error::Answerer;
use tower_agent::{AgentRequest, AgentResponse, EndReason, Resolution};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::flow::{FlowAnswer, OnViolation};
use tower_agent_test::{ScriptedModel, Turn};

use super::*;
use crate::guards::{ids, names, results, saved, to_open};

fn asking() -> Flow {
    flow().on_violation(OnViolation::Ask)
}

fn attack() -> ScriptedModel {
    ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("pay", pay_mallory()),
    ])
}

async fn answered(
    paused: &AgentResponse,
    log: &Log,
    flow: Flow,
    turns: impl IntoIterator<Item = Turn>,
    answers: impl IntoIterator<Item = Resolution>,
) -> AgentResponse {
    let model = ScriptedModel::new(turns);
    let request = AgentRequest::resume(saved(paused)).with_resolutions(to_open(paused, answers));
    guarded(&model, log, flow).run(request).await.unwrap()
}

#[tokio::test]
async fn a_person_sees_the_resolved_call_its_origin_and_each_rule() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "send_mail",
            json!({ "to": reference("@m1.0#/0/from"), "body": "{{@m1.0#/0/body}}" }),
        ),
    ]);
    let log = Log::default();
    let flow = hiding().ask_role("security");
    let paused = guarded(&model, &log, flow).run("?").await.unwrap();
    let [question] = paused.interrupts() else {
        panic!("{paused:?}")
    };
    assert_eq!(question.name, "agent/m2.0 flow");
    assert_eq!(question.reason, "flow");
    assert_eq!(question.answerer, Answerer::Role("security".to_owned()));
    assert_eq!(
        question.message.as_deref(),
        Some("`send_mail` needs your approval: it breaks a rule about the flow of data")
    );
    assert_eq!(
        question.payload,
        json!({
            "tool": "send_mail",
            "arguments": { "to": "bob@example.org", "body": SECRET },
            "violations": [
                { "rule": "trusted_argument", "argument": "/to", "from": ["read_mail"] },
                { "rule": "permitted_flow", "argument": "/body", "from": ["read_mail"] },
                { "rule": "permitted_flow", "argument": "/to", "from": ["read_mail"] },
            ],
        })
    );
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn an_answer_covers_one_call_in_another_process() {
    let cases = [
        (json!({ "approved": true }), "paid 1000 to mallory", 1),
        (
            json!({ "approved": false }),
            "the approver rejected this call",
            0,
        ),
        (
            json!({ "approved": false, "reason": "no" }),
            "the approver rejected this call: no",
            0,
        ),
    ];
    for (payload, told, paid) in cases {
        let log = Log::default();
        let paused = guarded(&attack(), &log, asking()).run("?").await.unwrap();
        assert!(matches!(paused.end_reason(), EndReason::Interrupted(_)));
        let yes = [Resolution::resolved("agent/m2.0 flow", payload)];
        let turns = [Turn::tool("pay", pay_mallory())];
        let again = answered(&paused, &log, asking(), turns, yes.clone()).await;
        assert_eq!(results(&again), [told]);
        assert_eq!(log.take().len(), paid);
        // The next call is another, and the answer to the first is none to it.
        assert_eq!(names(&again), ["agent/m3.0 flow"]);
        let third = answered(&again, &log, asking(), [], yes).await;
        assert_eq!(names(&third), ["agent/m3.0 flow"]);
        assert_eq!(log.take(), [""; 0]);
    }
}

#[tokio::test]
async fn anything_else_than_an_answer_is_asked_again() {
    for payload in [
        json!(true),
        json!([true]),
        json!({ "approved": "yes" }),
        json!({ "approved": true, "endorsed": ["/to"] }),
        json!({ "approved": false, "endorse": ["/to"] }),
    ] {
        let log = Log::default();
        let paused = guarded(&attack(), &log, asking()).run("?").await.unwrap();
        let answers = [Resolution::resolved("agent/m2.0 flow", payload)];
        let again = answered(&paused, &log, asking(), [], answers).await;
        assert_eq!(names(&again), ["agent/m2.0 flow"]);
        assert_eq!(log.take(), [""; 0]);
    }
}

#[tokio::test]
async fn an_approval_is_no_answer_and_both_are_asked() {
    let log = Log::default();
    let model = attack();
    let agent = |model: &ScriptedModel| {
        assistant(model, &log)
            .global_callbacks(Approval::of_tools(["pay"]))
            .global_callbacks(asking())
            .build()
            .unwrap()
    };
    let paused = agent(&model).run("?").await.unwrap();
    // Before the approval.
    assert_eq!(names(&paused), ["agent/m2.0 flow"]);

    let approve = Resolution::resolved("agent/m2.0", Decision::Approve);
    let request =
        AgentRequest::resume(saved(&paused)).with_resolutions(to_open(&paused, [approve]));
    let paused = agent(&ScriptedModel::new([])).run(request).await.unwrap();
    assert_eq!(names(&paused), ["agent/m2.0 flow"]);

    let yes = Resolution::resolved("agent/m2.0 flow", FlowAnswer::Approve);
    let request = AgentRequest::resume(saved(&paused)).with_resolutions(to_open(&paused, [yes]));
    let paused = agent(&ScriptedModel::new([])).run(request).await.unwrap();
    assert_eq!(names(&paused), ["agent/m2.0"]);
    assert_eq!(paused.interrupts()[0].payload["arguments"], pay_mallory());

    let approve = Resolution::resolved("agent/m2.0", Decision::Approve);
    let request =
        AgentRequest::resume(saved(&paused)).with_resolutions(to_open(&paused, [approve]));
    let model = ScriptedModel::new([Turn::from_text("Done.")]);
    agent(&model).run(request).await.unwrap();
    assert_eq!(log.take(), ["pay mallory 1000"]);
}

#[tokio::test]
async fn an_endorsed_value_is_trusted_from_then_on_and_no_other() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "pay",
            json!({ "to": reference("@m1.0#/0/from"), "amount": 5 }),
        ),
    ]);
    let flow = hiding().on_violation(OnViolation::Ask);
    let paused = guarded(&model, &log, flow.clone()).run("?").await.unwrap();
    let answer = Resolution::resolved("agent/m2.0 flow", FlowAnswer::endorse(["/to"]));
    let turns = [
        Turn::tool(
            "pay",
            json!({ "to": reference("@m1.0#/0/from"), "amount": 7 }),
        ),
        Turn::tool(
            "pay",
            json!({ "to": reference("@m1.0#/1/from"), "amount": 9 }),
        ),
    ];
    let again = answered(&paused, &log, flow, turns, [answer]).await;
    assert_eq!(
        log.take(),
        ["pay bob@example.org 5", "pay bob@example.org 7"]
    );
    assert_eq!(names(&again), ["agent/m4.0 flow"]);
}

#[tokio::test]
async fn without_the_checkpoint_it_is_asked_again() {
    let log = Log::default();
    let paused = guarded(&attack(), &log, asking()).run("?").await.unwrap();
    let model = ScriptedModel::new([]);
    let yes = [Resolution::resolved("agent/m2.0 flow", FlowAnswer::Approve)];
    let request = AgentRequest::conversation(paused.messages().clone()).with_resolutions(yes);
    let again = guarded(&model, &log, asking()).run(request).await.unwrap();
    assert_eq!(ids(&again).len(), 1);
    assert_eq!(log.take(), [""; 0]);
}
