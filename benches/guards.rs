//! The time of middleware that has nothing to do, where a user meets it.
//!
//! Each is in an agent: in a run of 20 model calls and 19 tool calls, and in a run of one model
//! call whose response is streamed, four characters at a time. The same agent without middleware
//! runs beside it.
//!
//! To add one, add it to `support/middleware.rs`.

#[path = "support/journal.rs"]
#[allow(unreachable_pub, reason = "shared")]
mod journal;
#[path = "support/middleware.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared")]
mod middleware;
mod support;

use futures::StreamExt;
use tokio::runtime::Builder;
use tower_agent::stream::{Event, EventKind};
use tower_agent::{Agent, AgentBuilder, AgentRequest};
use tower_agent_test::{ScriptedModel, Turn};

use self::middleware::MIDDLEWARE;
use self::support::work::{self, SUMS};
use self::support::{Race, finish};

fn main() {
    // Time limits of a stream set a timer.
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let _guard = runtime.enter();
    race(
        "20 model calls and 19 tool calls",
        || work::agent(SUMS),
        |agent| finish(agent.run(AgentRequest::new("Count to 19."))).is_ok(),
    );
    race(
        "one model call, streamed in 250 deltas",
        || Agent::builder(ScriptedModel::always(Turn::from_text("word ".repeat(200)))),
        |agent| {
            let is_end = async |event: Event| matches!(event.kind, EventKind::RunFinished { .. });
            finish(agent.stream("Talk.").any(is_end))
        },
    );
}

/// Prints a row for each middleware, in an agent and run like this.
fn race(title: &str, agent: fn() -> AgentBuilder, run: fn(&Agent) -> bool) {
    let mut race = Race::default();
    let mut enter = |name, builder: AgentBuilder| {
        let agent = builder.build().unwrap();
        race.enter(name, move || assert!(run(&agent)));
    };
    enter("agent", agent());
    for middleware in MIDDLEWARE {
        enter(middleware.name, (middleware.add)(agent()));
    }
    let results = race.run();
    let alone = &results[0];
    println!("\n{title}\n");
    println!("| | us a run | ns more | times the agent alone | allocations a run |");
    println!("|---|--:|--:|--:|--:|");
    for measured in &results {
        println!(
            "| {} | {:.1} | {:.0} | {:.2} | {} |",
            measured.name,
            measured.nanoseconds() / 1e3,
            measured.over(alone),
            measured.ratio(alone),
            measured.allocations.count,
        );
    }
}
