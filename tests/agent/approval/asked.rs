//! An answer counts for the question that was shown, and for no other of its call.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tower_agent::callback::before_tool;
use tower_agent::error::ResolutionOutcome;
use tower_agent::{
    Agent, AgentBuilder, AgentRequest, AgentResponse, Error, Interrupt, Request, Resolution, Tool,
    ToolRequest,
};
use tower_agent_middleware::approval::Approval;
use tower_agent_test::{ScriptedModel, Turn};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A shop whose orders change while somebody decides about a refund.
#[derive(Clone, Default)]
struct Shop {
    total: Arc<AtomicU32>,
    refunds: Arc<Mutex<Vec<Value>>>,
}

impl Shop {
    fn agent(&self, ask: impl FnOnce(&Self, AgentBuilder) -> AgentBuilder) -> Agent {
        let model = ScriptedModel::new([
            Turn::tool("refund", json!({ "order": 7 })),
            Turn::from_text("Done."),
        ]);
        let total = self.total.clone();
        let agent = Agent::builder(model).on_tool(before_tool(move |request| {
            request.arguments_mut()["cents"] = total.load(Ordering::SeqCst).into();
        }));
        ask(self, agent).build().unwrap()
    }

    fn refund(&self, call: &ToolRequest) -> &'static str {
        let cents = call.arguments()["cents"].clone();
        self.refunds.lock().unwrap().push(cents);
        "refunded"
    }
}

/// The approval asks.
fn guard(shop: &Shop, agent: AgentBuilder) -> AgentBuilder {
    let shop = shop.clone();
    let refund = Tool::function_with("refund", "", move |_: Value, call| shop.refund(&call));
    agent
        .tool(refund)
        .on_tool(Approval::of_tools(["refund"]).deny_after(DAY))
}

/// The tool itself asks, with nothing of the call in its question.
fn tool(shop: &Shop, agent: AgentBuilder) -> AgentBuilder {
    let shop = shop.clone();
    let refund = Tool::function_with("refund", "", move |_: Value, call: ToolRequest| {
        let no = ResolutionOutcome::Cancelled;
        let sure = Interrupt::new("sure", "confirmation").with_expiry(SystemTime::now() + DAY, no);
        call.ask(sure)?;
        Ok::<_, Error>(shop.refund(&call))
    });
    agent.tool(refund)
}

fn yes(question: &Interrupt) -> Resolution {
    Resolution::resolved(&question.id, json!({ "approved": true }))
}

async fn resume(
    agent: &Agent,
    paused: &AgentResponse,
    answers: impl IntoIterator<Item = Resolution>,
) -> AgentResponse {
    let request = AgentRequest::resume(paused.checkpoint()).with_resolutions(answers);
    agent.run(request).await.unwrap()
}

#[tokio::test]
async fn an_answer_is_none_to_a_question_that_was_asked_anew() {
    for ask in [guard, tool] {
        let shop = Shop::default();
        shop.total.store(10, Ordering::SeqCst);
        let agent = shop.agent(ask);
        let first = agent.run("My money back.").await.unwrap();
        let seen = first.interrupts()[0].clone();

        // Asked again with nothing changed, it is the same question.
        let again = resume(&agent, &first, []).await;
        assert_eq!(again.interrupts(), std::slice::from_ref(&seen));

        shop.total.store(900_000, Ordering::SeqCst);
        let changed = resume(&agent, &again, []).await;
        let asked = changed.interrupts()[0].clone();
        assert_eq!(asked.name, seen.name);
        assert_ne!(asked.id, seen.id);
        assert_eq!(asked.expiry, seen.expiry, "the first time goes on");
        let left = resume(&agent, &changed, [yes(&seen)]).await;
        assert_eq!(left.interrupts(), std::slice::from_ref(&asked));
        assert_eq!(*shop.refunds.lock().unwrap(), [] as [Value; 0]);

        let done = resume(&agent, &left, [yes(&asked)]).await;
        assert_eq!(done.text(), "Done.");
        assert_eq!(*shop.refunds.lock().unwrap(), [900_000]);
    }
}

/// What was approved of is made, and nothing else, also if the change comes after the answer.
#[tokio::test]
async fn an_answer_is_none_to_a_call_that_has_changed_since() {
    for ask in [guard, tool] {
        let shop = Shop::default();
        let agent = shop.agent(ask);
        let first = agent.run("My money back.").await.unwrap();
        shop.total.store(900_000, Ordering::SeqCst);
        let asked = resume(&agent, &first, [yes(&first.interrupts()[0])]).await;
        assert_eq!(asked.interrupts().len(), 1);
        assert_eq!(*shop.refunds.lock().unwrap(), [] as [Value; 0]);
    }
}

/// A guard in front of another one asks after that one was answered.
#[tokio::test]
async fn an_answer_that_a_guard_in_front_keeps_counts_in_a_later_run() {
    for keeps in [false, true] {
        let shop = Shop::default();
        let audits = Arc::new(AtomicBool::new(false));
        let is_audited = audits.clone();
        let audit = before_tool(move |call: &mut ToolRequest| {
            if !is_audited.load(Ordering::SeqCst) {
                return Ok(());
            }
            if keeps {
                call.context().keep_answers();
            }
            call.ask(Interrupt::new("audit", "audit")).map(drop)
        });
        let agent = shop.agent(|shop, agent| guard(shop, agent.on_tool(audit.guard())));
        let first = agent.run("My money back.").await.unwrap();
        let asked = first.interrupts()[0].clone();
        audits.store(true, Ordering::SeqCst);
        let mut audited = resume(&agent, &first, [yes(&asked)]).await;
        // Also over a run that nobody has answered.
        for answered in [false, true] {
            assert_eq!(audited.interrupts().len(), 1);
            assert_eq!(audited.interrupts()[0].name, "audit");
            let answers = answered.then(|| yes(&audited.interrupts()[0]));
            audited = resume(&agent, &audited, answers).await;
        }
        if !keeps {
            assert_eq!(audited.interrupts(), std::slice::from_ref(&asked));
            continue;
        }
        assert_eq!(audited.text(), "Done.");
        assert_eq!(shop.refunds.lock().unwrap().len(), 1);
        // Not longer than the call is open.
        let next = AgentRequest::resume(audited.checkpoint()).with_message("Thanks.");
        let next = agent.run(next).await.unwrap_err();
        let saved = serde_json::to_string(next.checkpoint().unwrap()).unwrap();
        assert!(!saved.contains(&*asked.id), "{saved}");
    }
}

/// The next request does not carry the answer again, and one that is made up is none.
#[tokio::test]
async fn an_answer_is_kept_until_the_call_has_a_result() {
    let two = Tool::function_with("pay", "", |_: Value, call: ToolRequest| {
        call.ask(Interrupt::new("sure", "confirmation"))?;
        let pin = call.ask(Interrupt::new("pin", "input_required"))?;
        Ok::<_, Error>(format!("paid: {:?}", pin.outcome))
    });
    let model = ScriptedModel::new([Turn::tool("pay", json!({})), Turn::from_text("Done.")]);
    let agent = Agent::builder(model).tool(two).build().unwrap();
    let sure = agent.run("Pay.").await.unwrap();
    let pin = resume(&agent, &sure, [yes(&sure.interrupts()[0])]).await;
    assert_eq!(pin.interrupts()[0].name, "pin");
    let by_name = Resolution::resolved("pin", "1234");
    let pin = resume(&agent, &pin, [by_name]).await;
    assert_eq!(pin.interrupts()[0].name, "pin");
    let done = resume(
        &agent,
        &pin,
        [Resolution::resolved(&pin.interrupts()[0].id, "1234")],
    )
    .await;
    assert_eq!(done.text(), "Done.");
    let said = done.messages()[2].tool_results().next().unwrap().text();
    assert_eq!(said, r#"paid: Resolved(String("1234"))"#);
}
