//! The agent loop compared with two loops by hand.
//!
//! All make 20 model calls and 19 tool calls, with the same model, messages and arguments. The
//! independent loop is that of `support/by_hand.rs`, which has structs of its own. The other uses
//! this crate's messages, requests and responses; like the agent, it has a path in the error of an
//! argument, catches the tool's panics, and stops when a token is cancelled.

#[path = "support/by_hand.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "shared; nothing reads its messages"
)]
mod by_hand;
mod support;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower_agent::callback::{after_model, after_tool, before_model, before_tool};
use tower_agent::message::{Messages, ToolCall, ToolResult};
use tower_agent::{Agent, AgentRequest, BoxError, Message, Part, Usage};

use self::support::work::{self, Add, SUMS};
use self::support::{Race, finish};

const CALLS: f64 = (2 * SUMS + 1) as f64;

fn main() {
    let plain = agent(0);
    let watched = agent(5);

    let independent = by_hand::Loop::new(SUMS, 0);

    let mut race = Race::default();
    race.enter("by hand", || {
        let (history, tokens) = finish(independent.run("Count to 19.")).unwrap();
        assert_eq!((history.len(), tokens), (40, 2200));
    });
    race.enter("by hand, with the crate's types", || {
        let question = Message::user("Count to 19.");
        let (messages, usage) = finish(with_own_types(question, CancellationToken::new())).unwrap();
        assert_eq!((messages.len(), usage.total()), (40, 2200));
    });
    for (name, agent) in [("agent", &plain), ("agent, 10 callbacks a call", &watched)] {
        race.enter(name, move || {
            let response = finish(agent.run(AgentRequest::new("Count to 19."))).unwrap();
            assert_eq!(
                (response.messages().len(), response.usage().total()),
                (40, 2200)
            );
        });
    }
    let results = race.run();
    let [by_hand, own_types, plain, watched] = &results[..] else {
        unreachable!()
    };

    println!("20 model calls and 19 tool calls a run\n");
    println!(
        "| | us a run | times by hand | times by hand with the crate's types | allocations a run | KiB a run |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    for measured in &results {
        println!(
            "| {} | {:.1} | {:.2} | {:.2} | {} | {:.1} |",
            measured.name,
            measured.nanoseconds() / 1e3,
            measured.ratio(by_hand),
            measured.ratio(own_types),
            measured.allocations.count,
            measured.allocations.bytes as f64 / 1024.0,
        );
    }
    println!(
        "\na callback, with its share of the band: {:.0} ns a call",
        watched.over(plain) / CALLS / 10.0
    );
}

/// An agent with this many callbacks before and after each of its calls.
fn agent(pairs: usize) -> Agent {
    let mut builder = work::agent(SUMS);
    for _ in 0..pairs {
        builder = builder
            .on_model(before_model(|_| {}))
            .on_model(after_model(|_, _| {}))
            .on_tool(before_tool(|_| {}))
            .on_tool(after_tool(|_, _| {}));
    }
    builder.build().unwrap()
}

/// The loop by hand, with the types of this crate.
async fn with_own_types(
    question: Message,
    cancelled: CancellationToken,
) -> Result<(Messages, Usage), BoxError> {
    let mut messages = Messages::from([question]);
    let mut usage = Usage::default();
    let run = async {
        loop {
            let response = model(messages.clone()).await?;
            usage += response.usage();
            let message = response.message().clone();
            messages.push(message.clone());
            if message.tool_calls().next().is_none() {
                return Ok((messages, usage));
            }
            for call in message.tool_calls() {
                let result = AssertUnwindSafe(tool(call)).catch_unwind().await;
                let parts = match result {
                    Ok(Ok(value)) => [Part::from(&value)],
                    Ok(Err(error)) => [Part::from_text(error.to_string())],
                    Err(_) => [Part::from_text("the tool panicked")],
                };
                messages.push(Message::tool(ToolResult::new(call, parts)));
            }
        }
    };
    cancelled
        .run_until_cancelled(run)
        .await
        .unwrap_or_else(|| Err("cancelled".into()))
}

async fn model(messages: Messages) -> Result<tower_agent::ModelResponse, BoxError> {
    Ok(work::answer(&messages, SUMS))
}

async fn tool(call: &ToolCall) -> Result<Value, BoxError> {
    match &*call.name {
        "add" => {
            let text = &mut serde_json::Deserializer::from_str(call.arguments.as_str());
            let Add { a, b } = serde_path_to_error::deserialize(text)?;
            Ok(Value::from(a + b))
        }
        name => Err(format!("there is no tool `{name}`").into()),
    }
}
