//! The agent loop compared with a handwritten one.
//!
//! Both make 20 model calls and 19 tool calls, with the same model, messages and arguments. Both
//! parse the arguments into the tool's type with a path in the error, catch the tool's panics,
//! count tokens, and stop when a token is cancelled.

mod support;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tower_agent::callback::{after_model, after_tool, before_model, before_tool};
use tower_agent::message::{Messages, ToolCall, ToolResult};
use tower_agent::{Agent, AgentRequest, BoxError, Message, Part, Usage};

use self::support::work::{self, Add};
use self::support::{Measured, Race, finish};

const SUMS: usize = 19;
const CALLS: f64 = (2 * SUMS + 1) as f64;

fn main() {
    let plain = agent(0);
    let watched = agent(5);

    let mut race = Race::default();
    race.enter("by hand", || {
        let (messages, usage) = finish(by_hand(
            Message::user("Count to 19."),
            CancellationToken::new(),
        ))
        .unwrap();
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
    let [by_hand, plain, watched] = &results[..] else {
        unreachable!()
    };

    println!("20 model calls and 19 tool calls a run\n");
    println!("| | us a run | x by hand | ns a call over by hand | allocations a run | KiB a run |");
    println!("|---|--:|--:|--:|--:|--:|");
    for measured in &results {
        row(measured, by_hand);
    }
    println!(
        "\na callback, with its share of the band: {:.0} ns a call",
        watched.over(plain) / CALLS / 10.0
    );
}

fn row(measured: &Measured, base: &Measured) {
    println!(
        "| {} | {:.1} | {:.2} | {:.0} | {} | {:.1} |",
        measured.name,
        measured.nanoseconds() / 1e3,
        measured.ratio(base),
        measured.over(base) / CALLS,
        measured.allocations.count,
        measured.allocations.bytes as f64 / 1024.0,
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

/// The same by hand, without an agent.
async fn by_hand(
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
