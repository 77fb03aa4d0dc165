//! Long conversations cost what is new in them.
//!
//! Polls and allocations are counted. Comparisons cannot be, so the sizes are such that a walk over
//! all for each would not end while anybody waits.

#[path = "../../benches/support/allocations.rs"]
#[allow(unreachable_pub, reason = "shared with the benches")]
mod allocations;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use futures::StreamExt;
use serde_json::{Value, json};
use tower_agent::message::{Messages, ToolCall, ToolResult};
use tower_agent::{
    Agent, AgentRequest, Error, ErrorKind, Interrupt, Message, ModelResponse, Part, Request, Role,
    State, Tool, ToolRequest,
};
use tower_agent_test::{ScriptedModel, Turn};

/// Runs a future that never waits.
fn finish<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

/// So much more for twice as much, at most: a little more than twice.
fn is_linear(what: &str, mut cost: impl FnMut(usize) -> usize, size: usize) {
    cost(size);
    let (once, twice) = (cost(size), cost(2 * size));
    assert!(
        twice < once * 5 / 2,
        "{what}: {once} for {size}, {twice} for {}",
        2 * size
    );
}

fn call(index: usize) -> ToolCall {
    ToolCall::new(format!("call_{index}"), "look", json!({ "at": index }))
}

fn answer(index: usize) -> Message {
    Message::tool(ToolResult::new(&call(index), [Part::from_text("seen")]))
}

/// All calls in one turn, or each in a turn of its own.
fn history(calls: usize, in_one_turn: bool) -> Messages {
    let mut messages = Messages::from([Message::user("Look.")]);
    if in_one_turn {
        let parts = (0..calls).map(|index| Part::ToolCall(call(index)));
        messages.push(Message::new(Role::Assistant, parts));
        messages.extend((0..calls).map(answer));
    } else {
        for index in 0..calls {
            messages.push(Message::new(Role::Assistant, [Part::ToolCall(call(index))]));
            messages.push(answer(index));
        }
    }
    messages
}

fn listener() -> Agent {
    Agent::builder(ScriptedModel::always(Turn::from_text("I see.")))
        .build()
        .unwrap()
}

#[test]
fn a_long_history_is_read_once() {
    for in_one_turn in [true, false] {
        let agent = listener();
        let run = |calls| {
            let history = history(calls, in_one_turn);
            allocations::of(|| finish(agent.run(AgentRequest::conversation(history.clone())))).bytes
        };
        is_linear("a history", |calls| run(calls) + 1000, 1000);
        let long = AgentRequest::conversation(history(20_000, in_one_turn));
        assert_eq!(finish(agent.run(long.clone())).unwrap().text(), "I see.");
        assert_eq!(
            finish(agent.stream(long).response()).unwrap().text(),
            "I see."
        );
    }
}

#[test]
fn a_turn_of_many_calls_costs_as_much_as_its_calls() {
    let look = || Tool::function("look", "Looks.", |_: Value| "seen");
    let wait = || {
        Tool::function_with("look", "Waits.", async |_: Value, call: ToolRequest| {
            Err::<(), _>(Error::interrupt(Interrupt::new(call.id(), "confirmation")))
        })
    };
    let tools: [fn() -> Tool; 2] = [look, wait];
    for (which, tool) in tools.into_iter().enumerate() {
        let run = |calls: usize, is_streamed| {
            let calls = (0..calls).map(|index| Part::ToolCall(call(index)));
            let turn = ModelResponse::new(Message::new(Role::Assistant, calls));
            let model = ScriptedModel::new([Turn::response(turn), Turn::from_text("done")]);
            let agent = Agent::builder(model).tool(tool()).build().unwrap();
            finish(async {
                if is_streamed {
                    agent.stream("Go.").response().await
                } else {
                    agent.run("Go.").await
                }
            })
        };
        for is_streamed in [false, true] {
            is_linear(
                "a turn",
                |calls| allocations::of(|| run(calls, is_streamed).unwrap()).count,
                500,
            );
            let response = run(4000, is_streamed).unwrap();
            assert_eq!(response.interrupts().len(), which * 4000);
        }
    }
}

/// Counts how often a future is polled.
struct Counted<F>(Pin<Box<F>>, Arc<AtomicUsize>);

impl<F: Future> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.1.fetch_add(1, SeqCst);
        self.0.as_mut().poll(cx)
    }
}

#[test]
fn tools_that_tell_side_by_side_are_polled_as_often_as_they_tell() {
    const TOLD: usize = 20;
    let polls = |siblings: usize| {
        let polls = Arc::<AtomicUsize>::default();
        let counts = polls.clone();
        let tell = Tool::function_with("look", "Tells.", move |_: Value, call: ToolRequest| {
            let tell = async move {
                for number in 0..TOLD {
                    call.context().emit("number", number).await;
                }
            };
            Counted(Box::pin(tell), counts.clone())
        });
        let calls = (0..siblings).map(|index| Part::ToolCall(call(index)));
        let turn = ModelResponse::new(Message::new(Role::Assistant, calls));
        let model = ScriptedModel::new([Turn::response(turn), Turn::from_text("done")]);
        let agent = Agent::builder(model)
            .tool(tell)
            .tool_concurrency(siblings)
            .build()
            .unwrap();
        let events = finish(agent.stream("Go.").collect::<Vec<_>>());
        assert!(events.len() > siblings * TOLD);
        polls.load(SeqCst)
    };
    is_linear("siblings", polls, 500);
    assert!(polls(1000) <= 1000 * (TOLD + 1));
}

#[test]
fn a_state_keeps_nothing_of_streams_that_only_looked() {
    let agent = listener();
    let state = State::default();
    let run = || {
        let request = AgentRequest::new("Look.").with_state(state.clone());
        finish(agent.stream(request).response()).unwrap();
    };
    run();
    for _ in 0..10 {
        assert_eq!(allocations::left(run), 0);
    }
    let watched = agent.stream(AgentRequest::new("Look.").with_state(state.clone()));
    drop(watched);
    assert_eq!(allocations::left(run), 0);
}

// Names that stand in every event

#[test]
fn an_endless_name_of_a_run_is_refused() {
    let agent = listener();
    let named = |length| AgentRequest::new("Look.").with_run_id("r".repeat(length));
    for result in [
        finish(agent.run(named(1 << 20))),
        finish(agent.stream(named(1 << 20)).response()),
        finish(agent.run(named(1025))),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message().contains("the maximum is 1024"), "{error}");
    }
    assert_eq!(finish(agent.run(named(1024))).unwrap().text(), "I see.");
}

#[test]
fn an_endless_name_of_a_call_is_replaced_and_one_with_a_signature_is_not() {
    for (length, is_kept) in [(16 * 1024, true), (1 << 20, false)] {
        let call = ToolCall::new("c".repeat(length), "look", json!({}));
        let turn = || {
            let asks = Turn::response(ModelResponse::from_tool_calls([call.clone()]));
            ScriptedModel::new([asks, Turn::from_text("done")])
        };
        let agent = |model| {
            let look = Tool::function("look", "Looks.", |_: Value| "seen");
            Agent::builder(model).tool(look).build().unwrap()
        };
        for response in [
            finish(agent(turn()).run("Look.")).unwrap(),
            finish(agent(turn()).stream("Look.").response()).unwrap(),
        ] {
            let ids: Vec<_> = response
                .new_messages()
                .flat_map(|message| {
                    let calls = message.tool_calls().map(|call| call.id.clone());
                    calls
                        .chain(message.tool_results().map(|result| result.call_id.clone()))
                        .collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(ids.len(), 2);
            assert_eq!(ids[0], ids[1], "the answer finds its call");
            assert_eq!(ids[0].len() == length, is_kept);
        }
    }
}
