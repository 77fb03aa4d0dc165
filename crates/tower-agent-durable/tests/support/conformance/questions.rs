//! A call that may have been made is not made by another run of its conversation without an answer.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tower_agent::callback::before_tool;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, Error, ErrorKind, Resolution, Tool, ToolRequest,
};
use tower_agent_durable::journal::UnfinishedStep;
use tower_agent_middleware::approval::{Approval, Decision};

use crate::support::place::Place;
use crate::support::{Count, calling, durable, request, waiting};

/// The idempotency keys of the payments.
pub(crate) type Keys = Arc<Mutex<Vec<String>>>;

/// A tool whose time runs out as often as this.
pub(crate) fn slow(keys: &Keys, times: usize) -> Tool {
    let keys = keys.clone();
    let pay = move |_: Value, request: ToolRequest| {
        let mut keys = keys.lock().unwrap();
        keys.push(request.idempotency_key());
        if keys.len() > times {
            Ok("pay done")
        } else {
            Err(Error::new(ErrorKind::Timeout, "too slow"))
        }
    };
    Tool::function_with("pay", "Does it.", pay)
}

pub(crate) fn keys(keys: &Keys) -> Vec<String> {
    keys.lock().unwrap().clone()
}

/// The name of the only question of a run, and the key of its call.
pub(crate) fn named(paused: &AgentResponse) -> (String, Value) {
    let (_, key) = asked(paused);
    (paused.interrupts()[0].name.clone(), key)
}

/// The id of the only question of a run, and the key of its call.
pub(crate) fn asked(paused: &AgentResponse) -> (String, Value) {
    let [asked] = paused.interrupts() else {
        panic!("{:?}", paused.interrupts())
    };
    assert_eq!(asked.reason, UnfinishedStep::REASON);
    (asked.id.clone(), asked.payload["idempotency_key"].clone())
}

pub(crate) fn answer(paused: &AgentResponse, answer: impl Into<Value>) -> Resolution {
    Resolution::resolved(asked(paused).0, answer.into())
}

/// Returns the result that the model reads for the only call.
pub(crate) fn told(response: &AgentResponse) -> String {
    assert_eq!(response.text(), "Done.");
    let mut told = response
        .messages()
        .iter()
        .flat_map(|message| message.tool_results());
    told.next().unwrap().text()
}

/// Continues the conversation in a run of another id.
pub(crate) fn go_on(
    paused: &AgentResponse,
    answers: impl IntoIterator<Item = Resolution>,
) -> AgentRequest {
    AgentRequest::resume(paused.checkpoint()).with_resolutions(answers)
}

pub(crate) async fn an_answer_counts_in_a_run_of_any_id(place: impl Place) {
    let journal = place.open().await;
    for is_killed in [false, true] {
        let answers = [
            (Some(UnfinishedStep::Done(json!("paid"))), "paid"),
            (Some(UnfinishedStep::Failed("no".into())), "tool failed: no"),
            (
                None,
                "tool failed: stopped while it was running; its outcome is unknown",
            ),
            (Some(UnfinishedStep::RunAgain), "pay done"),
        ];
        for (n, (answer, text)) in answers.into_iter().enumerate() {
            let paid = Keys::default();
            let agent = |tool: Tool| {
                let model = calling(&["pay"], &Count::default());
                durable(model, journal.clone()).tool(tool).build().unwrap()
            };
            let run = format!("run {n} {is_killed}");
            let request = || AgentRequest::new("Do it.").with_run_id(&*run);
            if is_killed {
                let (tool, _, has_begun) = waiting(&Count::default());
                let lost = tokio::spawn(agent(tool).run(request()));
                has_begun.await.unwrap();
                lost.abort();
                paid.lock().unwrap().push("not known".into());
            }
            let agent = agent(slow(&paid, 1));
            let first = agent.run(request()).await.unwrap();
            let question = asked(&first);
            // Without an answer, and with one to something else, it is asked about again.
            let other = Resolution::resolved("agent/m1.0", true);
            let second = agent.run(go_on(&first, [])).await.unwrap();
            let third = agent.run(go_on(&second, [other])).await.unwrap();
            assert_eq!(
                (asked(&second), asked(&third)),
                (question.clone(), question.clone())
            );
            assert_eq!(keys(&paid).len(), 1, "{text}");

            let answer = match answer {
                Some(answer) => Resolution::resolved(&question.0, answer),
                None => Resolution::cancelled(&question.0),
            };
            let done = || agent.run(go_on(&third, [answer.clone()]));
            assert_eq!(told(&done().await.unwrap()), text);
            let is_made = text == "pay done";
            assert_eq!(keys(&paid).len(), 1 + usize::from(is_made));
            if is_made {
                assert_eq!(keys(&paid)[1], question.1);
            } else {
                // The same answer again calls nothing either.
                assert_eq!(told(&done().await.unwrap()), text);
                assert_eq!(keys(&paid).len(), 1);
            }
        }
    }
}

pub(crate) async fn an_attempt_in_another_run_has_a_question_of_its_own(place: impl Place) {
    let (journal, paid) = (place.open().await, Keys::default());
    let agent = |tool: Tool| {
        let model = calling(&["pay"], &Count::default());
        durable(model, journal.clone()).tool(tool).build().unwrap()
    };
    let first = agent(slow(&paid, 2)).run(request()).await.unwrap();
    let again = answer(&first, UnfinishedStep::RunAgain);
    // The process dies in the second attempt: the first answer is not about that.
    let request = || go_on(&first, [again.clone()]).with_run_id("another run");
    let (tool, _, has_begun) = waiting(&Count::default());
    let lost = tokio::spawn(agent(tool).run(request()));
    has_begun.await.unwrap();
    lost.abort();
    let second = agent(slow(&paid, 2)).run(request()).await.unwrap();
    assert_eq!(named(&first).0, "unfinished agent/m1.0 1");
    assert_eq!(
        named(&second),
        ("unfinished agent/m1.0 2".into(), asked(&first).1)
    );
    assert_eq!(keys(&paid).len(), 1);

    let again = [again, answer(&second, UnfinishedStep::RunAgain)];
    let third = agent(slow(&paid, 2))
        .run(go_on(&second, again.clone()))
        .await
        .unwrap();
    assert_eq!(
        named(&third),
        ("unfinished agent/m1.0 3".into(), asked(&first).1)
    );
    let fourth = agent(slow(&paid, 2))
        .run(go_on(&third, again))
        .await
        .unwrap();
    assert_eq!((asked(&fourth), keys(&paid).len()), (asked(&third), 2));
    let done = answer(&fourth, UnfinishedStep::Done(json!("paid")));
    assert_eq!(
        told(
            &agent(slow(&paid, 2))
                .run(go_on(&fourth, [done]))
                .await
                .unwrap()
        ),
        "paid"
    );
    assert_eq!(keys(&paid).len(), 2);
}

/// The layers around the tool.
#[derive(Clone, Copy, Debug)]
enum Around {
    Nothing,
    Approval,
    Agent,
    Both,
}

pub(crate) async fn layers_around_the_tool_change_nothing(place: impl Place) {
    let journal = place.open().await;
    for around in [
        Around::Nothing,
        Around::Approval,
        Around::Agent,
        Around::Both,
    ] {
        let paid = Keys::default();
        let approval = match around {
            Around::Approval | Around::Both => Approval::of_tools(["pay"]),
            _ => Approval::when(|_| false),
        };
        let pays = slow(&paid, 1);
        let agent = match around {
            Around::Agent | Around::Both => {
                let worker = Agent::builder(calling(&["pay"], &Count::default())).name("worker");
                let worker = worker.tool(pays).on_tool(approval).build().unwrap();
                durable(calling(&["worker"], &Count::default()), journal.clone())
                    .tool(worker.into_tool("Works."))
            }
            _ => durable(calling(&["pay"], &Count::default()), journal.clone())
                .tool(pays)
                .on_tool(approval),
        };
        let agent = agent.build().unwrap();
        let mut paused = agent.run("Do it.").await.unwrap();
        if paused.interrupts()[0].reason != UnfinishedStep::REASON {
            let yes = Resolution::resolved(&paused.interrupts()[0].id, Decision::Approve);
            paused = agent.run(go_on(&paused, [yes])).await.unwrap();
        }
        let question = asked(&paused);
        paused = agent.run(go_on(&paused, [])).await.unwrap();
        assert_eq!(
            (asked(&paused), keys(&paid).len()),
            (question.clone(), 1),
            "{around:?}"
        );
        for (given, count) in [
            (UnfinishedStep::Done(json!("paid")), 1),
            (UnfinishedStep::RunAgain, 2),
        ] {
            let answer = answer(&paused, given);
            let done = agent.run(go_on(&paused, [answer])).await.unwrap();
            assert_eq!(
                (done.text(), keys(&paid).len()),
                ("Done.".into(), count),
                "{around:?}"
            );
        }
        assert_eq!(keys(&paid)[1], question.1);
    }
}

pub(crate) async fn a_call_has_one_key_whatever_callbacks_make_of_its_arguments(place: impl Place) {
    let journal = place.open().await;
    let paid = Keys::default();
    let agent = || {
        let adds = |name: &'static str| {
            before_tool(move |request: &mut ToolRequest| {
                request.arguments_mut()[name] = json!(1);
            })
        };
        let worker = Agent::builder(calling(&["pay"], &Count::default())).name("worker");
        let worker = worker.on_tool(adds("one")).on_tool(adds("other"));
        let worker = worker.tool(slow(&paid, 1)).build().unwrap();
        let boss = durable(calling(&["worker"], &Count::default()), journal.clone());
        let boss = boss.on_tool(adds("more")).tool(worker.into_tool("Pays."));
        boss.build().unwrap()
    };
    let paused = agent().run(request()).await.unwrap();
    let again = answer(&paused, UnfinishedStep::RunAgain);
    let (_, shown) = asked(&paused);
    agent().run(go_on(&paused, [again])).await.unwrap();
    assert_eq!(keys(&paid), [shown.as_str().unwrap(); 2]);
}
