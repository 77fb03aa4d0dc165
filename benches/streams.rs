//! The cost of a streamed delta on its way from a model to the bytes sent to a client.
//!
//! It passes through a whole run: the model's attempt, its mappers, the queue, the stream, the
//! translation, the order, the copy of the client's messages, JSON. Compared with creating the same
//! events and serialising them with `serde_json` alone. That is no minimum, so the same bytes are
//! also written by hand.

#[path = "support/deltas.rs"]
#[allow(unreachable_pub, reason = "shared")]
mod deltas;
mod support;

use futures::StreamExt;
use tower_agent::stream::EventKind;
use tower_agent_agui::{AgUi, before_translate, sse};

use self::deltas::{DELTAS, WORD, agent, input, serve};
use self::support::{Race, allocations, finish, work};

const BARE: &str = "a run without mappers and callbacks";
const MAPPED: &str = "with 10 mappers";
const AIMS: [(&str, &str); 2] = [(BARE, "1.5"), (MAPPED, "2.5")];

fn main() {
    a_delta();
    memory();
    side_by_side();
}

fn a_delta() {
    let mapped = |mappers| agent(DELTAS, mappers).build().unwrap();
    let servers = [
        (BARE, AgUi::new(mapped(0))),
        ("with 1 mapper", AgUi::new(mapped(1))),
        (MAPPED, AgUi::new(mapped(10))),
        (
            "with a translate callback",
            AgUi::builder(mapped(0))
                .on_translate(before_translate(|_| {}))
                .build(),
        ),
    ];
    let mut race = Race::default();
    race.enter("`serde_json` alone", deltas::written_alone);
    race.enter("written by hand", deltas::written_by_hand);
    let agent = mapped(0);
    race.enter("a run's events, not translated", move || {
        finish(async {
            let mut run = agent.stream("Talk.");
            let mut count = 0;
            while let Some(event) = run.next().await {
                count += usize::from(matches!(event.kind, EventKind::TextDelta { .. }));
            }
            count
        })
    });
    for (name, server) in &servers {
        let mut bytes = Vec::with_capacity(32 << 10);
        race.enter(*name, move || serve(server, &mut bytes));
    }
    let (mut none, mut ten) = (deltas::mappers(0), deltas::mappers(10));
    race.enter("through no mapper, without a run", move || {
        deltas::mapped_alone(&mut none)
    });
    race.enter("through 10 mappers, without a run", move || {
        deltas::mapped_alone(&mut ten)
    });
    let results = race.run();
    println!("| | ns a delta | times `serde_json` alone | aim | allocations a delta |");
    println!("|---|--:|--:|--:|--:|");
    for measured in &results {
        println!(
            "| {} | {:.0} | {:.2} | {} | {:.2} |",
            measured.name,
            measured.nanoseconds() / DELTAS as f64,
            measured.ratio(&results[0]),
            AIMS.iter()
                .find(|(name, _)| *name == measured.name)
                .map_or("", |(_, aim)| aim),
            measured.allocations.count as f64 / DELTAS as f64,
        );
    }
}

/// The peak memory of a run that streams more and more.
fn memory() {
    println!("\n| deltas a run | most bytes held, beyond the answer itself |");
    println!("|--:|--:|");
    for words in [1_000, 10_000, 100_000, 1_000_000] {
        let server = AgUi::new(agent(words, 0).build().unwrap());
        let mut bytes = Vec::with_capacity(32 << 10);
        let peak = allocations::peak(|| serve(&server, &mut bytes));
        let answer = words * WORD.len();
        println!(
            "| {words} | {} ({:.1} times the answer) |",
            peak,
            peak as f64 / answer as f64
        );
    }
}

/// Many streams on one thread, each read a few events at a time.
fn side_by_side() {
    const STREAMS: [usize; 3] = [10, 100, 1000];
    let server = AgUi::new(agent(100, 0).build().unwrap());
    let mut race = Race::default();
    for streams in STREAMS {
        let server = &server;
        race.enter(streams.to_string(), move || {
            finish(async {
                let mut runs = Vec::with_capacity(streams);
                for _ in 0..streams {
                    runs.push((server.run(input()).await.unwrap(), sse::Writer::new()));
                }
                let mut bytes = Vec::with_capacity(1 << 10);
                while !runs.is_empty() {
                    let mut left = Vec::with_capacity(runs.len());
                    for (mut run, mut writer) in runs.drain(..) {
                        let mut over = false;
                        for _ in 0..8 {
                            match run.next().await {
                                Some(event) => writer.write(&event, &mut bytes).unwrap(),
                                None => over = true,
                            }
                        }
                        bytes.clear();
                        if !over {
                            left.push((run, writer));
                        }
                    }
                    runs = left;
                }
            });
        });
    }
    println!("\n| streams at once | us a stream of 100 deltas | allocations a stream |");
    println!("|--:|--:|--:|");
    for (measured, streams) in race.run().iter().zip(STREAMS) {
        println!(
            "| {} | {:.1} | {:.0} |",
            measured.name,
            measured.nanoseconds() / 1000.0 / streams as f64,
            measured.allocations.count as f64 / streams as f64,
        );
    }
}
