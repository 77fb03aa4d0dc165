//! How a turn ends whose calls end it in different ways, whichever of them stands first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use serde_json::{Value, json};
use tower_agent::callback::ToolFailure;
use tower_agent::compat::Semantics;
use tower_agent::{
    Agent, AgentRequest, AgentResponse, EndReason, Error, ErrorKind, Interrupt, Resolution, Result,
    Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

/// What a call does to its turn, the strongest first.
const KINDS: [&str; 7] = [
    "abort",
    "ask",
    "end",
    "fail",
    "transfer_to_agent",
    "submit",
    "look",
];

fn tools(ran: &Arc<AtomicU32>) -> Vec<Tool> {
    let ran = ran.clone();
    vec![
        Tool::function("abort", "Aborts.", |_: Value| {
            Err::<(), _>(Error::abort("the run is over"))
        }),
        Tool::function_with("ask", "Asks.", |_: Value, call: ToolRequest| {
            call.ask(Interrupt::new("sure", "confirmation"))
                .map(|_| "yes")
        }),
        Tool::function("end", "Ends the run.", |_: Value| {
            Err::<(), _>(Error::end_invocation())
        }),
        Tool::function("fail", "Fails.", |_: Value| {
            Err::<(), _>(Error::new(ErrorKind::Tool, "out of order"))
        }),
        Tool::function("submit", "Submits.", |_: Value| "submitted").gives_answer(),
        Tool::function("look", "Looks.", move |_: Value| {
            ran.fetch_add(1, SeqCst);
            "seen"
        }),
    ]
}

fn agent(order: &[&str], ran: &Arc<AtomicU32>, at_once: usize) -> Agent {
    let mut calls = order
        .iter()
        .map(|name| (*name, json!({ "agent_name": "other" })));
    let (first, arguments) = calls.next().unwrap();
    let turn = calls.fold(Turn::tool(first, arguments), |turn, (name, arguments)| {
        turn.and_tool(name, arguments)
    });
    let other = ScriptedModel::always(Turn::from_text("I take over."));
    let other = Agent::builder(other).name("other").build().unwrap();
    let mut semantics = Semantics::default();
    semantics.run.tool_failure = ToolFailure::FailRun;
    Agent::builder(ScriptedModel::new([turn, Turn::from_text("Done.")]))
        .tools(tools(ran))
        .sub_agent(other)
        .semantics(semantics)
        .tool_concurrency(at_once)
        .build()
        .unwrap()
}

/// How the run ended, as the strongest call of its turn says.
fn outcome(result: Result<AgentResponse>) -> String {
    match result {
        Err(error) => error.message().to_owned(),
        Ok(response) => match response.end_reason() {
            EndReason::Completed => response.text(),
            EndReason::Interrupted(_) => "asks".to_owned(),
            EndReason::EndedByCallback => "ended".to_owned(),
            other => panic!("{other:?}"),
        },
    }
}

fn expected(kind: &str) -> &'static str {
    match kind {
        "abort" => "the run is over",
        "ask" => "asks",
        "end" => "ended",
        "fail" => "out of order",
        "transfer_to_agent" => "I take over.",
        "submit" => "submitted",
        _ => "Done.",
    }
}

/// Each order of each three of the kinds.
fn orders() -> Vec<[&'static str; 3]> {
    let mut orders = Vec::new();
    for first in KINDS {
        for second in KINDS {
            for third in KINDS {
                if first != second && second != third && first != third {
                    orders.push([first, second, third]);
                }
            }
        }
    }
    orders
}

fn rank(kind: &str) -> usize {
    KINDS.iter().position(|known| *known == kind).unwrap()
}

#[tokio::test]
async fn the_strongest_of_parallel_calls_decides_in_every_order() {
    for order in orders() {
        let strongest = order.iter().min_by_key(|kind| rank(kind)).unwrap();
        for is_streamed in [false, true] {
            let ran = Arc::default();
            let agent = agent(&order, &ran, 8);
            let result = if is_streamed {
                agent.stream("?").response().await
            } else {
                agent.run("?").await
            };
            assert_eq!(outcome(result), expected(strongest), "{order:?}");
            // An abort is for what starts, too, and the other endings for the next step.
            if !order.contains(&"abort") {
                let looks = u32::from(order.contains(&"look"));
                assert_eq!(ran.load(SeqCst), looks, "{order:?}");
            }
        }
    }
}

/// One by one, a call that stops the turn stops the calls after it, which are not made.
#[tokio::test]
async fn of_calls_one_by_one_the_first_that_stops_the_turn_decides() {
    for order in orders() {
        let stops = order
            .iter()
            .find(|kind| rank(kind) < rank("transfer_to_agent"));
        let strongest = order.iter().min_by_key(|kind| rank(kind)).unwrap();
        let ran = Arc::default();
        let result = agent(&order, &ran, 1).run("?").await;
        let decides = stops.unwrap_or(strongest);
        assert_eq!(outcome(result), expected(decides), "{order:?}");
        let before = order.iter().take_while(|kind| Some(*kind) != stops);
        let looks = before.filter(|kind| **kind == "look").count();
        assert_eq!(ran.load(SeqCst) as usize, looks, "{order:?}");
    }
}

/// The answer to the question decides then, beside what the others of the turn have come to.
#[tokio::test]
async fn what_a_question_has_held_up_counts_once_it_is_answered() {
    for order in [["ask", "end"], ["end", "ask"]] {
        let ran = Arc::default();
        let agent = agent(&order, &ran, 8);
        let paused = agent.run("?").await.unwrap();
        let id = paused.interrupts()[0].id.clone();
        let answer = [Resolution::resolved(id, json!(true))];
        let request = AgentRequest::resume(paused.checkpoint()).with_resolutions(answer);
        assert_eq!(outcome(agent.run(request).await), "ended", "{order:?}");
    }
}
