//! What a streamed delta costs on its way from a model to the bytes that a front end is sent.
//!
//! Through a whole run: the model's attempt, its mappers, the queue, the stream, the translation,
//! the order, the shadow of the front end's messages, JSON. Beside it the least that could be done:
//! the same events made and written as JSON by `serde_json` alone.

mod support;

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::StreamExt;
use tower::service_fn;
use tower_agent::agui::{AgUi, Event, Message, RunAgentInput, before_translate, sse};
use tower_agent::callback::before_model;
use tower_agent::stream::{Delta, EventKind, map_fn};
use tower_agent::{Agent, AgentBuilder, BoxError, Error, ModelRequest, ModelResponse};

use self::support::{Race, allocations, finish};

const DELTAS: usize = 1000;
const WORD: &str = "a word ";

fn main() {
    deltas();
    memory();
    side_by_side();
}

/// A model that says so many words.
fn talker(words: usize) -> AgentBuilder {
    Agent::builder(service_fn(move |request: ModelRequest| async move {
        let Some(sink) = request.delta_sender() else {
            return Err(Error::from(BoxError::from("unseen")));
        };
        let mut attempt = sink.open();
        for _ in 0..words {
            attempt.send(Delta::Text(WORD.to_owned())).await?;
        }
        Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
    }))
}

fn mapped(mappers: usize) -> Agent {
    let builder = (0..mappers).fold(talker(DELTAS), |builder, _| {
        builder.on_model(before_model(|request| request.map_deltas(|| map_fn(Some))))
    });
    builder.build().unwrap()
}

/// Each in a thread of its own.
fn input() -> RunAgentInput {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let thread = format!("thread {}", THREADS.fetch_add(1, Relaxed));
    RunAgentInput::new(thread, "run", [Message::user("m1", "Talk.")])
}

/// Reads a run to its end; how many bytes a front end is sent.
fn served(server: &AgUi, bytes: &mut Vec<u8>) -> usize {
    finish(async {
        let mut run = server.run(input()).await.unwrap();
        let (mut writer, mut sent) = (sse::Writer::new(), 0);
        while let Some(event) = run.next().await {
            writer.write(&event, bytes).unwrap();
            if bytes.len() > 16 << 10 {
                sent += bytes.len();
                bytes.clear();
            }
        }
        sent
    })
}

fn deltas() {
    let servers = [
        ("a run without mappers and callbacks", AgUi::new(mapped(0))),
        ("with 1 mapper", AgUi::new(mapped(1))),
        ("with 10 mappers", AgUi::new(mapped(10))),
        (
            "with a translate callback",
            AgUi::builder(mapped(0)).on_translate(before_translate(|_| {})).build(),
        ),
    ];
    let mut race = Race::default();
    let message = std::sync::Arc::<str>::from("4b2f1c1e-0000-4000-8000-000000000000-0");
    race.enter("`serde_json` alone", move || {
        for _ in 0..DELTAS {
            let event = Event::text_content(message.clone(), WORD);
            black_box(serde_json::to_string(&event).unwrap());
        }
    });
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
        race.enter(*name, move || served(server, &mut bytes));
    }
    let results = race.run();
    println!("| | ns a delta | ratio | allocations a delta |");
    println!("|---|--:|--:|--:|");
    for measured in &results {
        println!(
            "| {} | {:.0} | {:.2} | {:.2} |",
            measured.name,
            measured.nanoseconds() / DELTAS as f64,
            measured.ratio(&results[0]),
            measured.allocations.count as f64 / DELTAS as f64,
        );
    }
}

/// What is held at most while a run streams more and more.
fn memory() {
    println!("\n| deltas a run | most bytes held, beyond the answer itself |");
    println!("|--:|--:|");
    for words in [1_000, 10_000, 100_000, 1_000_000] {
        let server = AgUi::new(talker(words).build().unwrap());
        let mut bytes = Vec::with_capacity(32 << 10);
        let peak = allocations::peak(|| served(&server, &mut bytes));
        let answer = words * WORD.len();
        println!("| {words} | {} ({:.1} times the answer) |", peak, peak as f64 / answer as f64);
    }
}

/// Many streams on one thread, each read a few events at a time.
fn side_by_side() {
    const STREAMS: [usize; 3] = [10, 100, 1000];
    let server = AgUi::new(talker(100).build().unwrap());
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
