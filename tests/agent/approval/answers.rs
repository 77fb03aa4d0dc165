//! An answer is for one call, as the person saw it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tower_agent::callback::{before_tool, on_tool_error};
use tower_agent::message::ToolCall;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Checkpoint, Effect, Error, ErrorKind,
    Interrupt, Message, ModelResponse, Part, Recovery, Resolution, Role, Tool, ToolRequest,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};

use test_support::log::Log;

/// An agent whose `pay` needs approval, and what it paid.
fn guarded(model: &ScriptedModel, log: &Log) -> AgentBuilder {
    let log = log.clone();
    let pay = Tool::function("pay", "Pays.", move |amount: u32| {
        log.note(format!("paid {amount}"))
    });
    Agent::builder(model.clone())
        .tool(pay)
        .on_tool(Approval::of_tools(["pay"]).allow_edits())
}

fn amount(amount: u32) -> Value {
    json!({ "value": amount })
}

/// A resume in another process, with one answer to everything that waits.
fn resume(paused: &AgentResponse, payload: &Value) -> AgentRequest {
    let saved = serde_json::to_string(&paused.checkpoint()).unwrap();
    let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
    let answers: Vec<_> = checkpoint
        .head
        .interrupts
        .iter()
        .map(|pending| Resolution::resolved(&pending.id, payload.clone()))
        .collect();
    AgentRequest::resume(checkpoint).with_resolutions(answers)
}

fn yes() -> Value {
    json!({ "approved": true })
}

#[tokio::test]
async fn only_an_object_that_says_so_is_an_approval() {
    let object = |extra: Value| {
        let mut payload = yes();
        payload
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        payload
    };
    let no_answers = [
        json!(null),
        json!(true),
        json!("yes"),
        json!(1),
        json!([]),
        json!([true]),
        json!([true, null, null]),
        json!([yes()]),
        json!({}),
        json!({ "approved": "true" }),
        json!({ "approved": 1 }),
        json!({ "approved": null }),
        json!({ "approved": [true] }),
        json!({ "Approved": true }),
        json!({ "decision": yes() }),
        object(json!({ "edited_args": amount(1) })),
        object(json!({ "": 1 })),
        object(json!({ "editedArgs": [1], "reason": "" , "x": null })),
        object(json!({ "reason": 1 })),
    ];
    for payload in no_answers {
        let log = Log::default();
        let model = ScriptedModel::new([Turn::tool("pay", amount(1))]);
        let agent = guarded(&model, &log).build().unwrap();
        let paused = agent.run("?").await.unwrap();
        let again = agent.run(resume(&paused, &payload)).await.unwrap();
        assert_eq!(log.take(), [""; 0], "{payload}");
        assert_eq!(
            again.interrupts().len(),
            1,
            "{payload} is no answer, so it waits again"
        );
        assert_eq!(again.interrupts()[0].name, paused.interrupts()[0].name);
    }
    for twice in [
        r#"{"approved":false,"approved":true}"#,
        r#"[true]"#,
        r#"[true,null,null]"#,
    ] {
        assert!(serde_json::from_str::<Decision>(twice).is_err(), "{twice}");
    }
}

#[tokio::test]
async fn a_tool_that_asks_for_itself_after_the_approval_runs_once_both_are_answered() {
    for edited in [None, Some(amount(3))] {
        let log = Log::default();
        let ran = log.clone();
        let pay = Tool::function_with("pay", "Pays.", move |amount: u32, call: ToolRequest| {
            call.ask(Interrupt::new("pin", "input_required"))?;
            ran.note(format!("paid {amount}"));
            Ok::<_, Error>(())
        });
        let model = ScriptedModel::new([Turn::tool("pay", amount(7)), Turn::from_text("done")]);
        let agent = Agent::builder(model)
            .tool(pay)
            .on_tool(Approval::of_tools(["pay"]).allow_edits())
            .build()
            .unwrap();

        let asked = agent.run("?").await.unwrap();
        assert_eq!(asked.interrupts()[0].reason, "tool_call");
        let mut approval = yes();
        if let Some(edited) = &edited {
            approval["editedArgs"] = edited.clone();
        }
        let asked = agent.run(resume(&asked, &approval)).await.unwrap();
        let reasons: Vec<_> = asked
            .interrupts()
            .iter()
            .map(|interrupt| interrupt.reason.as_str())
            .collect();
        assert_eq!(reasons, ["input_required"]);
        let done = agent.run(resume(&asked, &json!("1234"))).await.unwrap();
        assert_eq!(done.text(), "done");
        assert_eq!(
            log.take(),
            [if edited.is_some() { "paid 3" } else { "paid 7" }]
        );
        let saved = serde_json::to_string(&done.checkpoint()).unwrap();
        assert!(
            !saved.contains("approval"),
            "what was asked is gone with the call: {saved}"
        );
    }
}

#[tokio::test]
async fn an_edit_that_does_not_fit_the_tool_is_not_used_up() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("pay", amount(7)), Turn::from_text("done")]);
    let agent = guarded(&model, &log).build().unwrap();
    let mut paused = agent.run("?").await.unwrap();
    for edit in [
        json!({ "value": "ten" }),
        json!({ "amount": 1 }),
        json!({}),
        json!(-1),
    ] {
        let payload = json!({ "approved": true, "editedArgs": edit });
        paused = agent.run(resume(&paused, &payload)).await.unwrap();
        assert_eq!(
            (log.take().len(), paused.interrupts().len()),
            (0, 1),
            "{edit}"
        );
        let message = paused.interrupts()[0].message.clone().unwrap();
        assert!(message.contains("value"), "{edit}: {message}");
    }
    let payload = json!({ "approved": true, "editedArgs": amount(10) });
    agent.run(resume(&paused, &payload)).await.unwrap();
    assert_eq!(log.take(), ["paid 10"]);
}

#[tokio::test]
async fn an_answer_is_for_what_the_person_saw() {
    // A callback before the approval changes the call after the question.
    let log = Log::default();
    let raise = Arc::new(AtomicBool::new(false));
    let raises = raise.clone();
    let model = ScriptedModel::new([Turn::tool("pay", amount(7)), Turn::from_text("done")]);
    let pay = {
        let log = log.clone();
        Tool::function("pay", "Pays.", move |amount: u32| {
            log.note(format!("paid {amount}"))
        })
    };
    let agent = Agent::builder(model)
        .tool(pay)
        .on_tool(before_tool(move |request| {
            if raises.load(Ordering::Relaxed) {
                *request.arguments_mut() = amount(7000);
            }
        }))
        .on_tool(Approval::of_tools(["pay"]))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    assert_eq!(paused.interrupts()[0].payload["arguments"], amount(7));
    raise.store(true, Ordering::Relaxed);
    let again = agent.run(resume(&paused, &yes())).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(again.interrupts()[0].payload["arguments"], amount(7000));
    agent.run(resume(&again, &yes())).await.unwrap();
    assert_eq!(log.take(), ["paid 7000"]);
}

#[tokio::test]
async fn a_retry_with_other_arguments_waits_for_another_answer() {
    let log = Log::default();
    let ran = log.clone();
    let pay = Tool::function("pay", "Pays.", move |amount: u32| {
        ran.note(format!("tried {amount}"));
        match amount {
            7 => Err(Error::new(ErrorKind::Overloaded, "busy")),
            _ => Ok("paid"),
        }
    });
    let model = ScriptedModel::new([Turn::tool("pay", amount(7)), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(pay.effect(Effect::Idempotent))
        .on_tool(Approval::of_tools(["pay"]))
        .on_tool(on_tool_error(|request, _| {
            *request.arguments_mut() = amount(8);
            Recovery::Retry
        }))
        .build()
        .unwrap();
    let paused = agent.run("?").await.unwrap();
    let again = agent.run(resume(&paused, &yes())).await.unwrap();
    assert_eq!(log.take(), ["tried 7"]);
    assert_eq!(again.interrupts()[0].payload["arguments"], amount(8));
    let done = agent.run(resume(&again, &yes())).await.unwrap();
    assert_eq!(
        (done.text(), log.take()),
        ("done".into(), vec!["tried 7".into(), "tried 8".into()])
    );
}

#[tokio::test]
async fn a_later_call_by_the_same_id_is_asked_about_anew() {
    // The provider names every call alike, and the calls are alike.
    let call = || {
        let call = ToolCall::new("call_1", "pay", amount(7));
        Turn::response(ModelResponse::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call)],
        )))
    };
    let log = Log::default();
    let model = ScriptedModel::new([
        call(),
        call(),
        Turn::from_text("done"),
        call(),
        Turn::from_text("done"),
    ]);
    let agent = guarded(&model, &log).build().unwrap();
    let first = agent.run("?").await.unwrap();
    let second = agent.run(resume(&first, &yes())).await.unwrap();
    assert_eq!(log.take(), ["paid 7"]);
    assert_eq!(
        second.interrupts().len(),
        1,
        "the answer to the first call is not one to the second"
    );
    let done = agent.run(resume(&second, &yes())).await.unwrap();
    assert_eq!(
        (done.text(), log.take()),
        ("done".to_owned(), vec!["paid 7".to_owned()])
    );
    let next = AgentRequest::resume(done.checkpoint()).with_message("Again.");
    let stale = Resolution::resolved(&first.interrupts()[0].id, yes());
    let third = agent.run(next.with_resolutions([stale])).await.unwrap();
    assert_eq!(
        (log.take().len(), third.interrupts().len()),
        (0, 1),
        "nor is an old one"
    );
}

#[tokio::test]
async fn calls_by_one_id_in_nested_agents_are_asked_about_once_each() {
    let call = |name: &str, arguments: Value| {
        let call = ToolCall::new("call_1", name, arguments);
        Turn::response(ModelResponse::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call)],
        )))
    };
    let log = Log::default();
    let inner = ScriptedModel::new([call("pay", amount(7)), Turn::from_text("paid")]);
    let inner = guarded(&inner, &log).name("clerk").build().unwrap();
    let ask = || call("clerk", json!({ "request": "Pay." }));
    let outer = ScriptedModel::new([ask(), Turn::from_text("done")]);
    let agent = Agent::builder(outer)
        .tool(inner.into_tool("Pays."))
        .global_callbacks(Approval::of_tools(["pay", "clerk"]))
        .build()
        .unwrap();
    let mut response = agent.run("?").await.unwrap();
    let mut asked = Vec::new();
    while !response.interrupts().is_empty() && asked.len() < 9 {
        asked.extend(
            response
                .interrupts()
                .iter()
                .map(|interrupt| interrupt.payload["tool"].clone()),
        );
        response = agent.run(resume(&response, &yes())).await.unwrap();
    }
    assert_eq!(
        (asked, response.text()),
        (vec![json!("clerk"), json!("pay")], "done".to_owned())
    );
    assert_eq!(log.take(), ["paid 7"]);
}

#[tokio::test]
async fn messages_and_an_answer_without_a_question_approve_of_nothing() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("pay", amount(7))]);
    let agent = guarded(&model, &log).build().unwrap();
    let paused = agent.run("?").await.unwrap();
    let answer = Resolution::resolved(&paused.interrupts()[0].id, yes());
    let early = AgentRequest::conversation(paused.messages().clone()).with_resolutions([answer]);
    let again = agent.run(early).await.unwrap();
    assert_eq!((log.take().len(), again.interrupts().len()), (0, 1));
}

#[tokio::test]
async fn a_yes_after_a_no_runs_nothing() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("pay", amount(7)),
        Turn::from_text("no"),
        Turn::from_text("still no"),
    ]);
    let agent = guarded(&model, &log).build().unwrap();
    let paused = agent.run("?").await.unwrap();
    let refused = agent
        .run(resume(&paused, &json!({ "approved": false })))
        .await
        .unwrap();
    let late = Resolution::resolved(&paused.interrupts()[0].id, yes());
    let late = AgentRequest::resume(refused.checkpoint())
        .with_message("Do!")
        .with_resolutions([late]);
    agent.run(late).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn an_old_yes_does_nothing_once_the_user_has_spoken() {
    // Of two members that wait, one's call stands in no transcript: its next has the same name.
    let log = Log::default();
    let call = |id: &str| {
        let call = ToolCall::new(id, "pay", amount(7));
        Turn::response(ModelResponse::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call)],
        )))
    };
    let member = |name: &str| {
        let model = ScriptedModel::new([call(name), call(name), Turn::from_text("done")]);
        guarded(&model, &log).name(name).build().unwrap()
    };
    let team = Agent::parallel("team")
        .agents([member("a"), member("b")])
        .build()
        .unwrap();
    let paused = team.run("?").await.unwrap();
    let again = team
        .run(resume(&paused, &yes()).with_message("Stop."))
        .await
        .unwrap();
    assert_eq!((log.take(), again.interrupts().len()), (vec![], 2));
    let done = team.run(resume(&again, &yes())).await.unwrap();
    assert_eq!(
        (log.take(), done.interrupts().len()),
        (vec!["paid 7".into(), "paid 7".into()], 0)
    );
}

#[tokio::test]
async fn a_question_is_stored_only_while_its_call_is_open_and_is_not_shown() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("pay", amount(7)), Turn::from_text("done")]);
    let agent = guarded(&model, &log).build().unwrap();
    let paused = agent.run("?").await.unwrap();
    let saved = |response: &AgentResponse| serde_json::to_string(&response.checkpoint()).unwrap();
    assert!(saved(&paused).contains("guard.approval"));
    for shown in [format!("{paused:?}"), format!("{:?}", paused.checkpoint())] {
        assert!(!shown.contains("guard.approval"), "{shown}");
    }
    let request = AgentRequest::resume(paused.checkpoint()).with_message("Never mind.");
    let done = agent.run(request).await.unwrap();
    assert!(!saved(&done).contains("guard.approval"), "{}", saved(&done));
}

#[tokio::test]
async fn a_user_who_speaks_through_a_layer_is_heard_before_an_answer() {
    let log = Log::default();
    let member = |name: &str| {
        let model = ScriptedModel::new([Turn::tool("pay", amount(7)), Turn::from_text("heard")]);
        guarded(&model, &log).name(name).build().unwrap()
    };
    let team = Agent::parallel("team")
        .agents([member("a"), member("b")])
        .build()
        .unwrap();
    let paused = team.run("?").await.unwrap();
    let mut request = resume(&paused, &yes());
    request.messages_mut().push(Message::user("Stop."));
    let heard = team.run(request).await.unwrap();
    assert_eq!((heard.text(), log.take()), ("heard".into(), vec![]));
}
