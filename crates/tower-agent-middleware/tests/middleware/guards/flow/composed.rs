//! The guard beside others, in streams, in runs with a typed answer.

use futures::StreamExt;
use serde_json::json;
use tower::ServiceBuilder;
use tower_agent::callback::{before_tool, on_tool_error};
use tower_agent::stream::EventKind;
use tower_agent::{AgentRequest, Error, ErrorKind, Recovery, Resolution};
use tower_agent_middleware::approval::{Approval, Decision};
use tower_agent_middleware::budget::{Budget, Limits};
use tower_agent_middleware::fallback::Fallback;
use tower_agent_middleware::flow::{FlowAnswer, OnViolation};
use tower_agent_middleware::redact::{Detector, Redact};
use tower_agent_middleware::retry::CallRetryLayer;
use tower_agent_test::{ScriptedModel, Turn};

use super::*;
use crate::guards::{names, saved, to_open};

fn done() -> Turn {
    Turn::from_text("Done.")
}

#[tokio::test]
async fn a_redacted_text_is_restored_after_the_rules_and_stays_untrusted() {
    let mails = || {
        Tool::function("mails", "", |_: Value| json!({ "from": "eve@example.org" }))
            .effect(Effect::Pure)
    };
    for is_hiding in [true, false] {
        let log = Log::default();
        let to = if is_hiding {
            reference("@m1.0#/from")
        } else {
            json!("[email-1]")
        };
        let model = ScriptedModel::new([
            Turn::tool("mails", json!({})),
            Turn::tool("echo", json!({ "it": to })),
            Turn::tool("pay", json!({ "to": to, "amount": 5 })),
            done(),
        ]);
        let redact = Redact::new([Detector::email()])
            .unwrap()
            .numbered()
            .restore_when(|_| true);
        let flow = if is_hiding { hiding() } else { flow() };
        let agent = assistant(&model, &log)
            .tool(mails())
            .global_callbacks(redact)
            .global_callbacks(flow)
            .build()
            .unwrap();
        agent.run("?").await.unwrap();
        assert_eq!(
            log.take(),
            ["echo {\"it\":\"eve@example.org\"}"],
            "{is_hiding}"
        );
        assert!(!read(&model.requests()).contains("eve@example.org"));
    }
}

#[tokio::test]
async fn an_approver_sees_the_values_of_references_and_may_change_them() {
    let log = Log::default();
    let agent = |model: &ScriptedModel| {
        assistant(model, &log)
            .global_callbacks(hiding())
            .global_callbacks(Approval::of_tools(["send_mail"]).allow_edits())
            .build()
            .unwrap()
    };
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "send_mail",
            json!({ "to": "user", "body": "{{@m1.0#/1/body}}" }),
        ),
    ]);
    let paused = agent(&model).run("?").await.unwrap();
    assert_eq!(
        paused.interrupts()[0].payload["arguments"],
        json!({ "to": "user", "body": "Hello" })
    );
    let edit = Decision::Edit(json!({ "to": "alice", "body": "Hello" }));
    let request = AgentRequest::resume(saved(&paused))
        .with_resolutions(to_open(&paused, [Resolution::resolved("agent/m2.0", edit)]));
    let model = ScriptedModel::new([done()]);
    agent(&model).run(request).await.unwrap();
    // The person's own arguments are trusted. The note about them is as private as the mail.
    assert_eq!(
        log.take(),
        ["send_mail {\"body\":\"Hello\",\"to\":\"alice\"}"]
    );
    assert!(!read(&model.requests()).contains("Hello"));
}

#[tokio::test]
async fn a_refused_call_costs_nothing_and_a_question_to_the_reader_counts() {
    let log = Log::default();
    let reader = ScriptedModel::new([Turn::from_text("yes")]);
    let reader = Agent::builder(reader).name("reader").build().unwrap();
    let flow = hiding().reader(reader).narrow_answers(8);
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "pay",
            json!({ "to": reference("@m1.0#/0/body"), "amount": 5 }),
        ),
        Turn::tool(
            "ask_about",
            json!({
                "about": [reference("@m1.0")],
                "question": "Is there one from bob?",
                "answer": { "type": "yes_no" },
            }),
        ),
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        done(),
    ]);
    let budget = Budget::new(Limits::new().model_calls(6).tool_calls(3));
    let agent = assistant(&model, &log)
        .tools(flow.tools())
        .global_callbacks(budget)
        .global_callbacks(flow)
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), ["pay bob 5"]);
    assert_eq!(results_read(&model)[2], "true");
}

#[tokio::test(start_paused = true)]
async fn a_retried_tool_hides_the_result_of_its_last_attempt() {
    let log = Log::default();
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let flaky = Tool::function("flaky", "", move |_: Value| {
        match attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => Err(Error::new(ErrorKind::Connection, SECRET)),
            attempt => Ok(format!("attempt {attempt}")),
        }
    });
    let model = ScriptedModel::new([
        Turn::tool("flaky", json!({})),
        Turn::tool("echo", json!({ "it": reference("@m1.0") })),
        done(),
    ]);
    let agent = assistant(&model, &log)
        .tool(flaky.effect(Effect::Pure))
        .tool_layer(CallRetryLayer::new().max_attempts(2))
        .global_callbacks(hiding())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), ["echo {\"it\":\"attempt 1\"}"]);
    assert!(!read(&model.requests()).contains("SECRET"));
}

#[tokio::test]
async fn arguments_that_a_callback_changes_for_another_attempt_are_checked_again() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "send_mail",
            json!({ "to": "user", "body": reference("@m1.0#/0/body") }),
        ),
        done(),
    ]);
    let failing = log.clone();
    let agent = assistant(&model, &log)
        .global_callbacks(hiding())
        .on_tool(before_tool(move |request| {
            let is_first = request.arguments()["to"] == "user";
            if request.name() == "send_mail" && is_first {
                failing.note("fails");
                return Err(Error::new(ErrorKind::Tool, "no"));
            }
            Ok(())
        }))
        .global_callbacks(
            tower_agent::callback::Bundle::new().outermost_tool(on_tool_error(|request, _| {
                if request.name() == "send_mail" && request.arguments()["to"] == "user" {
                    request.arguments_mut()["to"] = json!("mallory");
                    return Recovery::Retry;
                }
                Recovery::Propagate
            })),
        )
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), ["fails"], "mallory may not read it");
}

#[tokio::test]
async fn a_fallback_model_reads_the_same_names() {
    let log = Log::default();
    let busy = Error::new(ErrorKind::Overloaded, "busy");
    let first = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::error(busy.clone()),
        Turn::error(busy),
    ]);
    let second = ScriptedModel::new([
        Turn::tool("echo", json!({ "it": reference("@m1.0#/1/body") })),
        done(),
    ]);
    let model = ServiceBuilder::new().service(Fallback::new(first).or(second.clone()));
    let agent = Agent::builder(model)
        .tools(tools(&log))
        .global_callbacks(hiding())
        .build()
        .unwrap();
    agent.run("?").await.unwrap();
    assert_eq!(log.take(), ["echo {\"it\":\"Hello\"}"]);
    assert!(!read(&second.requests()).contains("SECRET"));
}

#[tokio::test]
async fn a_typed_answer_is_repaired_without_a_change_of_labels() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::from_text("{ \"value\": \"no number\" }"),
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        Turn::from_text("{ \"value\": 5 }"),
    ]);
    let answer = guarded(&model, &log, flow())
        .run_typed::<u32>("?")
        .await
        .unwrap();
    assert_eq!(answer.into_value().unwrap(), 5);
    assert_eq!(log.take(), ["pay bob 5"]);

    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::from_text(format!("{{ \"value\": \"{SECRET}\" }}")),
        Turn::tool("pay", pay_mallory()),
        Turn::from_text("{ \"value\": 5 }"),
    ]);
    guarded(&model, &log, flow())
        .run_typed::<u32>("?")
        .await
        .unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn a_decision_is_an_event_with_rules_and_labels_and_no_value() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool(
            "pay",
            json!({ "to": reference("@m1.0#/0/body"), "amount": 5 }),
        ),
        done(),
    ]);
    let mut run = guarded(&model, &Log::default(), hiding()).stream("?");
    let mut decisions = Vec::new();
    while let Some(event) = run.next().await {
        if let EventKind::Note { name, value } = event.kind
            && &*name == "flow"
        {
            decisions.push(value);
        }
    }
    assert_eq!(
        decisions,
        [json!({
            "call": "agent/m2.0",
            "iteration": 1,
            "tool": "pay",
            "decision": "refused",
            "violations": [{ "rule": "trusted_argument", "argument": "/to", "from": ["read_mail"] }],
            "context": { "integrity": "trusted" },
        })]
    );
}

#[tokio::test]
async fn a_stream_that_is_dropped_and_goes_on_keeps_its_labels() {
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::from_text("A long text.").hanging_after(1),
    ]);
    let log = Log::default();
    let mut run = guarded(&model, &log, flow()).stream("?");
    while let Some(event) = run.next().await {
        if matches!(event.kind, EventKind::TextDelta { .. }) {
            break;
        }
    }
    let checkpoint = run.checkpoint();
    drop(run);
    let model = ScriptedModel::new([Turn::tool("pay", pay_mallory()), done()]);
    let request = AgentRequest::resume(checkpoint);
    guarded(&model, &log, flow()).run(request).await.unwrap();
    assert_eq!(log.take(), [""; 0]);
}

#[tokio::test]
async fn runs_of_two_users_do_not_mix() {
    let log = Log::default();
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::from_text("Read."),
        Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
        done(),
        Turn::tool("echo", json!({ "it": reference("@m1.0") })),
        done(),
    ]);
    let agent = guarded(&model, &log, hiding());
    agent.run("first").await.unwrap();
    agent.run("second").await.unwrap();
    agent.run("third").await.unwrap();
    assert_eq!(log.take(), ["pay bob 5"]);
}

#[tokio::test]
async fn nothing_is_kept_without_the_guard_or_of_a_run_without_calls() {
    let model = ScriptedModel::new([Turn::tool("read_mail", json!({})), done()]);
    let log = Log::default();
    let plain = assistant(&model, &log)
        .build()
        .unwrap()
        .run("?")
        .await
        .unwrap();
    let saved = serde_json::to_string(&plain.checkpoint()).unwrap();
    assert!(!saved.contains("flow") && !saved.contains("label"));
}

#[tokio::test(start_paused = true)]
async fn a_question_is_asked_once_in_a_retry_and_answered_once() {
    let log = Log::default();
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let flaky = move |log: Log| {
        Tool::function("wire", "", move |_: Value| {
            log.note("wire");
            match attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => Err(Error::new(ErrorKind::Connection, "lost")),
                _ => Ok("wired"),
            }
        })
        .effect(Effect::Idempotent)
    };
    let tool = flaky(log.clone());
    let agent = |model: &ScriptedModel| {
        assistant(model, &log)
            .tool(tool.clone())
            .tool_layer(CallRetryLayer::new().max_attempts(2))
            .global_callbacks(flow().on_violation(OnViolation::Ask))
            .build()
            .unwrap()
    };
    let model = ScriptedModel::new([
        Turn::tool("read_mail", json!({})),
        Turn::tool("wire", json!({})),
    ]);
    let paused = agent(&model).run("?").await.unwrap();
    assert_eq!(names(&paused), ["agent/m2.0 flow"]);
    let yes = Resolution::resolved("agent/m2.0 flow", FlowAnswer::Approve);
    let request = AgentRequest::resume(saved(&paused)).with_resolutions(to_open(&paused, [yes]));
    agent(&ScriptedModel::new([done()]))
        .run(request)
        .await
        .unwrap();
    assert_eq!(log.take(), ["wire", "wire"]);
}

#[tokio::test]
async fn guardrails_see_no_hidden_value_and_stop_what_the_guard_allows() {
    use tower_agent::ModelRequest;
    use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Verdict};

    // Trips on what the request says, and is asked about each.
    let asked: std::sync::Arc<std::sync::Mutex<Vec<String>>> = std::sync::Arc::default();
    let notes = asked.clone();
    let check = move |request: &ModelRequest| {
        let words = read(std::slice::from_ref(request));
        notes.lock().unwrap().push(words.clone());
        if words.contains("Stop.") {
            Verdict::trip("it is told to")
        } else {
            Verdict::Pass
        }
    };
    let each = |check: std::sync::Arc<dyn Fn(&ModelRequest) -> Verdict + Send + Sync>| {
        let [before, beside, after] = [check.clone(), check.clone(), check];
        [
            Guardrail::before(move |request| std::future::ready(before(&request))),
            Guardrail::beside(move |request| std::future::ready(beside(&request))),
            Guardrail::after(move |request, _| std::future::ready(after(&request))),
        ]
    };
    for (at, guardrail) in each(std::sync::Arc::new(check)).into_iter().enumerate() {
        let log = Log::default();
        let agent = |model: &ScriptedModel| {
            let guardrail = guardrail.clone();
            assistant(model, &log)
                .model_layer(guardrail.with_on_trip(OnTrip::answer("I stop.")))
                .global_callbacks(hiding())
                .build()
                .unwrap()
        };
        // As without it: the model passes on what it has not read, and pays for the user.
        let model = ScriptedModel::new([
            Turn::tool("read_mail", json!({})),
            Turn::tool("echo", json!({ "it": reference("@m1.0#/1/body") })),
            Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
            done(),
        ]);
        let first = agent(&model).run("?").await.unwrap();
        assert_eq!(log.take(), ["echo {\"it\":\"Hello\"}", "pay bob 5"], "{at}");
        assert!(!asked.lock().unwrap().concat().contains("SECRET"), "{at}");

        // An answer in place of the model ends the turn; no call that the model made beside it is
        // made.
        let model = ScriptedModel::new([Turn::tool("pay", pay_mallory())]);
        let request = AgentRequest::resume(saved(&first)).with_message("Stop.");
        let stopped = agent(&model).run(request).await.unwrap();
        assert_eq!(stopped.text(), "I stop.", "{at}");
        assert_eq!(log.take(), [""; 0], "{at}");
    }
}

#[tokio::test]
async fn an_answer_in_place_of_the_model_is_nobodys_word() {
    use tower_agent_middleware::guardrail::{Guardrail, OnTrip, Verdict};

    for (flow, pays) in [
        (flow(), false),
        (
            flow().callbacks(tower_agent_middleware::flow::Label::trusted()),
            true,
        ),
    ] {
        let log = Log::default();
        // Trips at its first call.
        let calls = std::sync::atomic::AtomicUsize::new(0);
        let guardrail = Guardrail::before(move |_| {
            std::future::ready(
                match calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                    0 => Verdict::trip("it is the first"),
                    _ => Verdict::Pass,
                },
            )
        });
        let model = ScriptedModel::new([
            Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
            done(),
        ]);
        let agent = assistant(&model, &log)
            .model_layer(guardrail.with_on_trip(OnTrip::answer("I stop.")))
            .global_callbacks(flow)
            .build()
            .unwrap();
        let stopped = agent.run("?").await.unwrap();
        assert_eq!(stopped.text(), "I stop.");
        let request = AgentRequest::resume(saved(&stopped)).with_message("And now?");
        agent.run(request).await.unwrap();
        let expected: &[&str] = if pays { &["pay bob 5"] } else { &[] };
        assert_eq!(log.take(), expected);
    }
}

#[tokio::test]
async fn a_search_for_tools_is_read_where_the_program_trusts_their_words() {
    use tower_agent::tool::ToolDeclaration;
    use tower_agent_middleware::tool_search::ToolSearch;

    for trusts in [Some(true), Some(false), None] {
        let log = Log::default();
        let theirs = ToolDeclaration::new("theirs", "Works.");
        let theirs = match trusts {
            Some(_) => theirs.described_by_others(),
            None => theirs,
        };
        let service = tower::service_fn(async |_| {
            Ok::<_, tower_agent::BoxError>(tower_agent::ToolResponse::new("done"))
        });
        let search = ToolSearch::new([Tool::service(theirs, service)]);
        let model = ScriptedModel::new([
            Turn::tool("search_tools", json!({ "query": "works" })),
            Turn::tool("pay", json!({ "to": "bob", "amount": 5 })),
            done(),
        ]);
        let mut flow = hiding();
        if trusts == Some(true) {
            flow = flow.tool("theirs", ToolFlow::trusted().trust_description());
        }
        let agent = assistant(&model, &log)
            .tools(search.tools())
            .on_model(search);
        let agent = agent.global_callbacks(flow).build().unwrap();
        agent.run("?").await.unwrap();
        let found = &results_read(&model)[0];
        assert_eq!(found.contains("Works."), trusts != Some(false), "{found}");
        assert_eq!(log.take(), ["pay bob 5"]);
    }
}
