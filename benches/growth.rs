//! The cost of a step as a conversation grows.

mod support;

use tower_agent::message::Messages;
use tower_agent::{AgentRequest, Message};

use self::support::{Race, finish, work};

fn main() {
    steps();
    appends();
}

/// Runs of increasing length; a step is one model call and, except for the last, one tool call.
fn steps() {
    const STEPS: [usize; 3] = [10, 100, 1000];

    let agents = STEPS.map(|steps| work::agent(steps - 1).build().unwrap());
    let mut race = Race::default();
    for (steps, agent) in STEPS.iter().zip(&agents) {
        race.enter(steps.to_string(), move || {
            finish(agent.run(AgentRequest::new("Count."))).unwrap()
        });
    }
    println!("| steps a run | ns a step | allocations a step | bytes a step |");
    println!("|--:|--:|--:|--:|");
    for (measured, steps) in race.run().iter().zip(STEPS) {
        let steps = steps as f64;
        println!(
            "| {} | {:.0} | {:.1} | {:.0} |",
            measured.name,
            measured.nanoseconds() / steps,
            measured.allocations.count as f64 / steps,
            measured.allocations.bytes as f64 / steps,
        );
    }
}

/// Appending to a history that another clone shares.
fn appends() {
    const LENGTHS: [usize; 4] = [10, 100, 1000, 10_000];

    let message = Message::assistant("done");
    let histories = LENGTHS.map(|length| {
        (0..length)
            .map(|i| Message::user(i.to_string()))
            .collect::<Messages>()
    });
    let mut race = Race::default();
    for history in &histories {
        let message = &message;
        race.enter(history.len().to_string(), move || {
            let mut longer = history.clone();
            longer.push(message.clone());
            longer
        });
    }
    println!("\n| messages shared | ns an append | allocations | bytes |");
    println!("|--:|--:|--:|--:|");
    for measured in race.run() {
        println!(
            "| {} | {:.0} | {} | {} |",
            measured.name,
            measured.nanoseconds(),
            measured.allocations.count,
            measured.allocations.bytes,
        );
    }
}
