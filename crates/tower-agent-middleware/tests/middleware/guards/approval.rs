//! Tools that need a person's approval.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use serde_json::{Value, json};
use tower::ServiceExt;
use tower_agent::callback::{before_tool, on_tool_error, wrap_tool};
use tower_agent::compat::Semantics;
use tower_agent::error::Answerer;
use tower_agent::message::ToolCall;
use tower_agent::stream::EventKind;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Callbacks, Effect, EndReason, Error, ErrorKind, Message,
    ModelResponse, Part, Resolution, Role, Tool, ToolRequest,
};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_test::{ScriptedModel, Turn};
use tower_layer::Layer;

use crate::guards::{assert_answered, names, results, saved, to_open};
use test_support::log::Log;

fn guarded(log: &Log, model: &ScriptedModel) -> Agent {
    Agent::builder(model.clone())
        .tools([log.tool("wipe"), log.tool("look")])
        .on_tool(Approval::of_tools(["wipe"]).allow_edits())
        .build()
        .unwrap()
}

fn resume(
    agent: &Agent,
    paused: &AgentResponse,
    answers: impl IntoIterator<Item = Resolution>,
) -> impl Future<Output = Result<AgentResponse, Error>> {
    agent.run(AgentRequest::resume(saved(paused)).with_resolutions(to_open(paused, answers)))
}

#[tokio::test]
async fn another_process_does_as_was_decided() {
    let yes = |payload: Value| Resolution::resolved("agent/m1.0", payload);
    let edit = json!({ "approved": true, "editedArgs": "tape" });
    let cases = [
        (
            yes(json!({ "approved": true })),
            vec!["wipe \"disk\""],
            "wipe done",
        ),
        (
            yes(Decision::Approve.into()),
            vec!["wipe \"disk\""],
            "wipe done",
        ),
        (
            yes(edit),
            vec!["wipe \"tape\""],
            "wipe done\n(The approver changed the arguments to \"tape\".)",
        ),
        (
            yes(json!({ "approved": false })),
            vec![],
            "the approver rejected this call",
        ),
        (
            yes(json!({ "approved": false, "reason": "it is mine" })),
            vec![],
            "the approver rejected this call: it is mine",
        ),
        (
            Resolution::cancelled("agent/m1.0"),
            vec![],
            "the approver rejected this call",
        ),
    ];
    for (answer, ran, told) in cases {
        let log = Log::default();
        let first =
            ScriptedModel::new([Turn::tool("wipe", json!("disk")).and_tool("look", json!(1))]);
        let paused = guarded(&log, &first).run("?").await.unwrap();
        first.assert_done();
        assert!(matches!(paused.end_reason(), EndReason::Interrupted(_)));
        assert_eq!(log.take(), ["look 1"], "the call beside it is made");

        // Everything anew, from JSON.
        let answer = serde_json::from_value(serde_json::to_value(&answer).unwrap()).unwrap();
        let second = ScriptedModel::new([Turn::from_text("done")]);
        let done = resume(&guarded(&log, &second), &paused, [answer])
            .await
            .unwrap();

        second.assert_done();
        assert_eq!(log.take(), ran);
        assert_eq!(
            (done.text(), done.end_reason()),
            ("done".to_owned(), &EndReason::Completed)
        );
        assert_eq!(results(&done), [told]);
        assert!(done.checkpoint().head.interrupts.is_empty());
        assert_answered(done.messages());
        let refused = done
            .new_messages()
            .flat_map(Message::tool_results)
            .next()
            .unwrap()
            .is_error;
        assert_eq!(refused, ran.is_empty());
    }
}

#[tokio::test]
async fn a_call_that_waits_names_its_subject_and_the_answer_that_it_takes() {
    let model = ScriptedModel::new([Turn::tool("pay", json!({ "amount": 10_000 }))]);
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Pay {
        amount: u32,
    }
    let agent = Agent::builder(model)
        .tool(Tool::function("pay", "", |pay: Pay| pay.amount))
        .on_tool(before_tool(|request| {
            request.arguments_mut()["amount"] = json!(100)
        }))
        .on_tool(Approval::of_tools(["pay"]).allow_edits())
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();

    let [pending] = paused.interrupts() else {
        panic!("{paused:?}")
    };
    assert_eq!(
        (&*pending.name, &*pending.reason),
        ("agent/m1.0", "tool_call")
    );
    assert_eq!(pending.tool_call_id.as_deref(), Some("call_1"));
    assert_eq!(
        pending.message.as_deref(),
        Some("`pay` needs your approval")
    );
    let now = json!({ "tool": "pay", "arguments": { "amount": 100 } });
    assert_eq!(
        pending.payload, now,
        "the arguments as callbacks before have left them"
    );
    let schema = &pending.response_schema;
    assert_eq!(schema["required"], json!(["approved"]));
    assert_eq!(
        schema["properties"]["editedArgs"]["properties"]["amount"]["type"],
        "integer"
    );
    assert_eq!(saved(&paused).head.interrupts, paused.interrupts());
}

#[tokio::test]
async fn an_answer_that_is_no_decision_makes_no_call_and_is_asked_for_again() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::from_text("done")]);
    let agent = guarded(&log, &model);
    let mut paused = agent.run("?").await.unwrap();
    let malformed = [
        (json!(null), "invalid type: null"),
        (json!(true), "invalid type: boolean `true`"),
        (json!({}), "missing field `approved`"),
        (json!({ "approved": "yes" }), "invalid type: string \"yes\""),
        (
            json!({ "approved": true, "editedArguments": "tape" }),
            "unknown field",
        ),
        (
            json!({ "approved": false, "editedArgs": "tape" }),
            "`editedArgs` goes with an approval",
        ),
        (
            json!({ "approved": true, "result": "wiped" }),
            "stands in for a call that is not approved",
        ),
        (
            json!({ "approved": false, "result": "wiped", "reason": "it is mine" }),
            "has no `reason` beside it",
        ),
        // Only where answers are allowed.
        (
            json!({ "approved": false, "result": "wiped" }),
            "the call cannot be answered",
        ),
    ];
    for (payload, why) in malformed {
        let answer = Resolution::resolved("agent/m1.0", payload.clone());
        paused = resume(&agent, &paused, [answer]).await.unwrap();

        assert_eq!(names(&paused), ["agent/m1.0"], "{payload}");
        let message = paused.interrupts()[0].message.clone().unwrap();
        assert!(message.contains(why), "{message}");
        assert!(log.take().is_empty());

        if why == "the call cannot be answered" {
            assert!(Decision::from_payload(&payload).is_ok());
            continue;
        }
        let error = Decision::from_payload(&payload).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains(why));
    }
    let yes = Resolution::resolved("agent/m1.0", Decision::Approve);
    assert_eq!(resume(&agent, &paused, [yes]).await.unwrap().text(), "done");
    assert_eq!(log.take(), ["wipe \"disk\""]);
}

#[tokio::test]
async fn partial_answers_leave_the_rest_waiting_and_run_nothing_twice() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("wipe", json!("disk"))
            .and_tool("look", json!(1))
            .and_tool("wipe", json!("tape"))
            .and_tool("wipe", json!("card")),
        Turn::from_text("done"),
    ]);
    let agent = guarded(&log, &model);
    let yes = |id: &str| Resolution::resolved(id, Decision::Approve);

    let paused = agent.run("?").await.unwrap();
    assert_eq!(names(&paused), ["agent/m1.0", "agent/m1.2", "agent/m1.3"]);
    assert_eq!(log.take(), ["look 1"]);

    let paused = resume(&agent, &paused, [yes("agent/m1.2"), yes("agent/m1.8")])
        .await
        .unwrap();
    assert_eq!(names(&paused), ["agent/m1.0", "agent/m1.3"]);
    assert_eq!(log.take(), ["wipe \"tape\""]);

    let paused = resume(&agent, &paused, []).await.unwrap();
    assert_eq!(names(&paused), ["agent/m1.0", "agent/m1.3"]);
    assert!(log.take().is_empty());

    let no = Resolution::resolved("agent/m1.3", Decision::reject("keep it"));
    let done = resume(&agent, &paused, [yes("agent/m1.0"), no])
        .await
        .unwrap();
    model.assert_done();
    assert_eq!(log.take(), ["wipe \"disk\""]);
    assert_eq!(
        results(&done),
        ["wipe done", "the approver rejected this call: keep it"]
    );
    assert_answered(done.messages());
}

#[tokio::test]
async fn effects_decide_which_tools_are_asked_about() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("reads", json!(1))
        .and_tool("sets", json!(2))
        .and_tool("sends", json!(3))
        .and_tool("says_nothing", json!(4))
        .and_tool("exists_not", json!(5))]);
    let agent = Agent::builder(model)
        .tools([
            log.tool("reads").effect(Effect::Pure),
            log.tool("sets").effect(Effect::Idempotent),
            log.tool("sends").effect(Effect::Mutating),
            log.tool("says_nothing"),
        ])
        .on_tool(Approval::of_effects())
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();

    assert_eq!(names(&paused), ["agent/m1.2", "agent/m1.3", "agent/m1.4"]);
    assert_eq!(log.take(), ["reads 1", "sets 2"]);
}

#[tokio::test]
async fn a_predicate_decides_and_one_that_panics_lets_nothing_through() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("pay", json!(10))
        .and_tool("pay", json!(1000))
        .and_tool("pay", json!("much"))]);
    let agent = Agent::builder(model)
        .tool(log.tool("pay"))
        .on_tool(Approval::when(|request| {
            request.arguments().as_u64().unwrap() > 100
        }))
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();

    assert_eq!(names(&paused), ["agent/m1.1"]);
    assert_eq!(log.take(), ["pay 10"]);
    let told = results(&paused);
    assert!(told[1].starts_with("callback failed: panicked"), "{told:?}");
}

/// Some providers number the calls of every answer from nought.
#[tokio::test]
async fn an_answer_serves_one_call_even_if_the_next_has_its_id() {
    let call = || {
        let call = ToolCall::new("call_0", "wipe", json!("disk"));
        Turn::response(ModelResponse::new(Message::new(
            Role::Assistant,
            [Part::ToolCall(call)],
        )))
    };
    let log = Log::default();
    let model = ScriptedModel::new([call(), call(), Turn::from_text("done")]);
    let agent = guarded(&log, &model);
    let yes = |id| [Resolution::resolved(id, Decision::Approve)];

    let paused = agent.run("?").await.unwrap();
    let mut paused = resume(&agent, &paused, yes("agent/m1.0")).await.unwrap();
    assert_eq!(log.take().len(), 1);

    for answer in ["agent/m1.0", "agent/m2.0"] {
        assert_eq!(
            names(&paused),
            ["agent/m2.0"],
            "the second call has a name of its own"
        );
        assert!(log.take().is_empty());
        paused = resume(&agent, &paused, yes(answer)).await.unwrap();
    }
    assert_eq!(paused.text(), "done");
    assert_eq!(log.take().len(), 1);
}

#[tokio::test]
async fn a_retry_outside_is_given_the_same_answer() {
    let calls = std::sync::Arc::new(AtomicUsize::new(0));
    let model = ScriptedModel::new([Turn::tool("flaky", json!(null)), Turn::from_text("done")]);
    let agent = Agent::builder(model.clone())
        .tool(Tool::function("flaky", "", {
            let calls = calls.clone();
            move |_: Value| match calls.fetch_add(1, Ordering::SeqCst) {
                0 => Err(Error::new(ErrorKind::Tool, "not yet")),
                _ => Ok("at last"),
            }
        }))
        .tool_layer(wrap_tool(|request: ToolRequest, mut next| async move {
            match next.run(request.clone()).await {
                Ok(response) => Ok(response),
                Err(_) => next.run(request).await,
            }
        }))
        .on_tool(Approval::of_tools(["flaky"]))
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let yes = Resolution::resolved("agent/m1.0", Decision::Approve);
    let done = resume(&agent, &paused, [yes]).await.unwrap();

    model.assert_done();
    assert_eq!(results(&done), ["at last"]);
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn callbacks_after_it_see_the_edit_and_may_still_refuse() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("wipe", json!("tape")), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(log.tool("wipe"))
        .on_tool(Approval::of_tools(["wipe"]).allow_edits())
        .on_tool(before_tool(|request| match request.arguments().as_str() {
            Some("root") => Err(Error::new(ErrorKind::InvalidRequest, "never the root")),
            _ => Ok(()),
        }))
        .build()
        .unwrap();

    let paused = agent.run("?").await.unwrap();
    let edit = Resolution::resolved("agent/m1.0", Decision::Edit(json!("root")));
    let done = resume(&agent, &paused, [edit]).await.unwrap();

    assert!(log.take().is_empty());
    assert_eq!(results(&done), ["invalid request: never the root"]);
}

#[tokio::test]
async fn an_edit_is_asked_about_again_unless_edits_are_allowed() {
    for allowed in [false, true] {
        let log = Log::default();
        let model =
            ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::from_text("done")]);
        let approval = if allowed {
            Approval::of_effects().allow_edits()
        } else {
            Approval::of_effects()
        };
        let agent = Agent::builder(model.clone())
            .tool(log.tool("wipe"))
            .on_tool(approval.clone())
            // A second one says it no second time.
            .on_tool(approval)
            .build()
            .unwrap();
        let paused = agent.run("?").await.unwrap();
        let schema = &paused.interrupts()[0].response_schema;
        assert_eq!(
            schema["properties"].get("editedArgs").is_some(),
            allowed,
            "{schema}"
        );

        let edit = Resolution::resolved("agent/m1.0", Decision::Edit(json!("tape")));
        let request =
            AgentRequest::resume(saved(&paused)).with_resolutions(to_open(&paused, [edit]));
        let mut run = agent.stream(request);
        let mut shown = Vec::new();
        while let Some(event) = run.next().await {
            if let EventKind::ToolResult(result) = event.kind {
                shown.push(
                    result
                        .parts
                        .iter()
                        .filter_map(Part::as_text)
                        .collect::<String>(),
                );
            }
        }
        let edited = run.response().await.unwrap();
        if allowed {
            assert_eq!(log.take(), ["wipe \"tape\""]);
            let told = "wipe done\n(The approver changed the arguments to \"tape\".)";
            assert_eq!(
                (shown, results(&edited)),
                (vec![told.to_owned()], vec![told.to_owned()])
            );
            assert_eq!(
                model.requests()[1]
                    .messages()
                    .iter()
                    .next_back()
                    .unwrap()
                    .role(),
                Role::Tool
            );
            continue;
        }
        assert!(log.take().is_empty());
        assert_eq!(names(&edited), ["agent/m1.0"]);
        let message = edited.interrupts()[0].message.clone().unwrap();
        assert!(message.contains("cannot be edited"), "{message}");

        let yes = Resolution::resolved("agent/m1.0", Decision::Approve);
        let done = resume(&agent, &edited, [yes]).await.unwrap();
        assert_eq!(log.take(), ["wipe \"disk\""]);
        assert_eq!(
            results(&done),
            ["wipe done"],
            "what was shown is what has run"
        );
    }
}

/// Without an agent, as a layer around any tool service.
#[tokio::test]
async fn it_guards_a_tool_outside_an_agent() {
    let log = Log::default();
    let tool = Callbacks::new()
        .with(on_tool_error(|_, _| tower_agent::Recovery::Retry))
        .with(Approval::of_effects())
        .layer(log.tool("wipe").into_service());
    let request = ToolRequest::new(ToolCall::new("call_1", "wipe", json!(1)));

    let error = tool.oneshot(request).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(error.interrupts().len(), 1);
    assert!(log.take().is_empty());
}

/// In potato_agent a response of a tool's hook does not count; a rejection does all the same.
#[tokio::test]
async fn approvers_of_different_roles_decide_one_after_the_other_about_what_the_call_is_by_then() {
    for semantics in [Semantics::default(), Semantics::potato(), Semantics::trpc()] {
        let log = Log::default();
        let agent = |model: &ScriptedModel| {
            Agent::builder(model.clone())
                .tool(log.tool("wipe"))
                .on_tool(Approval::of_tools(["wipe"]).allow_edits())
                .on_tool(
                    Approval::of_tools(["wipe"])
                        .by_role("support")
                        .allow_edits(),
                )
                .on_tool(Approval::of_tools(["wipe"]).by_role("audit"))
                .semantics(semantics)
                .build()
                .unwrap()
        };
        let model = ScriptedModel::new([Turn::tool("wipe", json!("disk"))]);
        let mut paused = agent(&model).run("?").await.unwrap();
        let decisions = [
            (Answerer::User, "disk", Decision::Approve),
            (
                Answerer::Role("support".into()),
                "disk",
                Decision::Edit(json!("tape")),
            ),
        ];
        for (approver, shown, decision) in decisions {
            let [question] = paused.interrupts() else {
                panic!("one question at a time: {:?}", paused.interrupts());
            };
            assert_eq!(
                question.answerer,
                approver,
                "{:?} {question:?}",
                paused.end_reason()
            );
            assert_eq!(question.payload["arguments"], shown);
            let answer = Resolution::resolved(&question.id, decision);
            paused = resume(&agent(&ScriptedModel::new([])), &paused, [answer])
                .await
                .unwrap();
            assert!(log.take().is_empty());
        }
        let question = paused.interrupts()[0].clone();
        assert_eq!(question.answerer.role(), Some("audit"));
        assert_eq!(question.payload["arguments"], "tape");
        // The last one sees the edit, and cannot make one.
        let edit = Resolution::resolved(&question.id, Decision::Edit(json!("bin")));
        paused = resume(&agent(&ScriptedModel::new([])), &paused, [edit])
            .await
            .unwrap();
        let question = paused.interrupts()[0].clone();
        let answer = Resolution::resolved(&question.id, Decision::Approve);
        let model = ScriptedModel::new([Turn::from_text("done")]);
        let done = resume(&agent(&model), &paused, [answer]).await.unwrap();
        assert_eq!(done.text(), "done");
        assert_eq!(log.take(), ["wipe \"tape\""]);
    }
}

#[tokio::test]
async fn a_rejection_counts_under_every_semantics() {
    let all = [
        Semantics::potato(),
        Semantics::adk_python(),
        Semantics::adk_elixir(),
        Semantics::trpc(),
    ];
    for semantics in all {
        let log = Log::default();
        let model =
            ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::from_text("done")]);
        let agent = Agent::builder(model.clone())
            .semantics(semantics)
            .tool(log.tool("wipe"))
            .on_tool(std::sync::Arc::new(Approval::of_effects()))
            .on_tool(before_tool(|_| {}))
            .build()
            .unwrap();
        let paused = agent.run("?").await.unwrap();
        assert_eq!(names(&paused), ["agent/m1.0"]);
        let no = Resolution::resolved("agent/m1.0", Decision::reject("no"));
        let done = resume(&agent, &paused, [no]).await.unwrap();
        assert_eq!(
            results(&done),
            ["the approver rejected this call: no"],
            "{semantics:?}"
        );
        assert!(log.take().is_empty());
    }
}

#[tokio::test]
async fn a_question_that_is_asked_again_has_no_more_time_and_denies_at_its_end() {
    let day = Duration::from_secs(24 * 60 * 60);
    let log = Log::default();
    let agent = |model: &ScriptedModel| {
        Agent::builder(model.clone())
            .tool(log.tool("wipe"))
            .on_tool(Approval::of_tools(["wipe"]).deny_after(day))
            .build()
            .unwrap()
    };
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk"))]);
    let mut paused = agent(&model).run("?").await.unwrap();
    let expiry = paused.interrupts()[0].expiry.clone().unwrap();
    assert!(expiry.at > SystemTime::now() + day / 2);
    // An edit is not allowed, and a resume without an answer is none.
    let edit = Resolution::resolved("agent/m1.0", Decision::Edit(json!("tape")));
    for answers in [vec![edit], vec![]] {
        paused = resume(&agent(&ScriptedModel::new([])), &paused, answers)
            .await
            .unwrap();
        assert_eq!(paused.interrupts()[0].expiry.as_ref(), Some(&expiry));
    }
    let question = &paused.interrupts()[0];
    assert_eq!(
        question.answer_at(expiry.at - Duration::from_millis(1)),
        None
    );
    let denial = question.answer_at(expiry.at).unwrap();
    let model = ScriptedModel::new([Turn::from_text("A pity.")]);
    let done = resume(&agent(&model), &paused, [denial]).await.unwrap();
    assert_eq!(
        results(&done),
        ["the approver rejected this call: nobody answered in time"]
    );
    assert!(log.take().is_empty());
}

/// An edit is the approval of its own arguments, and the other person sees them.
#[tokio::test]
async fn of_two_who_approve_the_second_sees_what_the_first_has_written() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(log.tool("wipe"))
        .on_tool(Approval::of_tools(["wipe"]).allow_edits().by_two())
        .build()
        .unwrap();
    let mut paused = agent.run("?").await.unwrap();
    let edit = Decision::Edit(json!("tape"));
    let steps = [
        (Decision::Approve, None, "disk"),
        (Decision::Approve, Some("sam"), "disk"),
        (Decision::Approve, Some("sam"), "disk"),
        (edit, Some("kim"), "tape"),
        (Decision::Approve, Some("kim"), "tape"),
    ];
    for (decision, name, shown) in steps {
        let mut answer = Resolution::resolved("agent/m1.0", decision);
        answer.by = name.map(str::to_owned);
        paused = resume(&agent, &paused, [answer]).await.unwrap();
        let asked = &paused.interrupts()[0];
        assert_eq!(asked.payload["arguments"], shown);
        assert!(log.take().is_empty());
    }
    assert_eq!(
        paused.interrupts()[0].except.as_deref(),
        Some(&["kim".to_owned()][..])
    );
    let yes = Resolution::resolved("agent/m1.0", Decision::Approve).with_name("sam");
    let done = resume(&agent, &paused, [yes]).await.unwrap();
    assert_eq!(log.take(), ["wipe \"tape\""]);
    let result = done
        .messages()
        .iter()
        .find_map(|message| message.tool_results().next());
    assert_eq!(result.unwrap().answered_by(), ["sam", "kim", "sam"]);
}

#[tokio::test]
async fn a_call_of_nobody_known_cannot_wait_for_somebody_else() {
    let log = Log::default();
    let model = ScriptedModel::new([Turn::tool("wipe", json!("disk")), Turn::from_text("done")]);
    let agent = Agent::builder(model)
        .tool(log.tool("wipe"))
        .on_tool(Approval::of_tools(["wipe"]).not_by(|_| None))
        .build()
        .unwrap();
    let done = agent.run("?").await.unwrap();
    assert!(log.take().is_empty());
    assert!(
        results(&done)[0].contains("it is not known who"),
        "{done:?}"
    );
}

/// A person says what a call has returned; the next approver and the tool are not asked.
#[tokio::test]
async fn an_answer_is_the_result_of_a_call_that_is_not_made() {
    for (answer, read) in [
        (json!("gone already"), "gone already"),
        (json!(null), "null"),
    ] {
        let log = Log::default();
        let model = ScriptedModel::new([
            Turn::tool("wipe", json!("disk")).and_tool("look", json!(1)),
            Turn::from_text("done"),
        ]);
        let agent = Agent::builder(model)
            .tools([log.tool("wipe"), log.tool("look")])
            .on_tool(Approval::of_tools(["wipe"]).allow_answers().by_two())
            .on_tool(before_tool({
                let log = log.clone();
                move |request| log.note(format!("checked {}", request.name()))
            }))
            .build()
            .unwrap();
        let paused = agent.run("?").await.unwrap();
        log.take();
        let schema = &paused.interrupts()[0].response_schema;
        assert!(schema["properties"]["result"].is_boolean(), "{schema}");

        // Whose word it is stands in the result, so the server must know them.
        let respond = Decision::Respond(answer);
        let unknown = Resolution::resolved("agent/m1.0", respond.clone());
        let paused = resume(&agent, &paused, [unknown]).await.unwrap();
        assert_eq!(paused.interrupts().len(), 1);
        let mut known = Resolution::resolved("agent/m1.0", respond);
        known.by = Some("ada".into());
        let done = resume(&agent, &paused, [known]).await.unwrap();
        assert_eq!(done.text(), "done");
        assert!(log.take().is_empty());
        let answered: Vec<_> = done
            .messages()
            .iter()
            .flat_map(|message| message.tool_results())
            .map(|result| {
                let texts = result.parts.iter().filter_map(Part::as_text);
                (
                    texts.collect::<String>(),
                    result.is_error,
                    result.answered_by().to_vec(),
                )
            })
            .collect();
        assert_eq!(answered[0], (read.to_owned(), false, vec!["ada".into()]));
    }
}
