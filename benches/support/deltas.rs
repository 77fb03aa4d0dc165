//! A model that streams many words, and their way to the bytes of AG-UI.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use futures::StreamExt;
use tower::service_fn;
use tower_agent::callback::before_model;
use tower_agent::stream::{Delta, Mapper, map_fn};
use tower_agent::{Agent, AgentBuilder, BoxError, Error, ModelRequest, ModelResponse};
use tower_agent_agui::{AgUi, Event, Message, RunAgentInput, sse};

use super::work::finish;

/// Number of words of a run that is measured per delta.
pub const DELTAS: usize = 1000;
pub const WORD: &str = "a word ";

/// An agent whose model streams this many words, each of which passes through this many mappers.
pub fn agent(words: usize, mappers: usize) -> AgentBuilder {
    let model = service_fn(move |request: ModelRequest| async move {
        let Some(sink) = request.delta_sender() else {
            return Err(Error::from(BoxError::from("unseen")));
        };
        let mut attempt = sink.open();
        for _ in 0..words {
            attempt.send(Delta::Text(WORD.to_owned())).await?;
        }
        Ok::<_, Error>(ModelResponse::from(attempt.finish().await?))
    });
    let mapper = || before_model(|request| request.map_deltas(|| map_fn(Some)));
    (0..mappers).fold(Agent::builder(model), |builder, _| {
        builder.on_model(mapper())
    })
}

/// The events of a run, made and serialised as JSON by `serde_json`: what a straightforward program
/// does, and more than the least, see [`written_by_hand`].
pub fn written_alone() {
    let message = Arc::<str>::from("4b2f1c1e-0000-4000-8000-000000000000-0");
    for _ in 0..DELTAS {
        let event = Event::text_content(message.clone(), WORD);
        black_box(serde_json::to_string(&event).unwrap());
    }
}

/// The same, written around the text of each delta.
pub fn written_by_hand() {
    let message = Arc::<str>::from("4b2f1c1e-0000-4000-8000-000000000000-0");
    let event = Event::text_content(message.clone(), WORD);
    assert_eq!(
        by_hand(&message, WORD),
        serde_json::to_string(&event).unwrap()
    );
    for _ in 0..DELTAS {
        black_box(by_hand(black_box(&message), black_box(WORD)));
    }
}

fn by_hand(message: &str, text: &str) -> String {
    let mut event = String::with_capacity(128);
    event += r#"{"type":"TEXT_MESSAGE_CONTENT","messageId":""#;
    event += message;
    event += r#"","delta":""#;
    for character in text.chars() {
        match character {
            '"' | '\\' => event.extend(['\\', character]),
            '\0'..' ' => write!(event, "\\u{:04x}", u32::from(character)).unwrap(),
            _ => event.push(character),
        }
    }
    event += "\"}";
    event
}

/// Mappers that let every delta through.
pub fn mappers(count: usize) -> Vec<Box<dyn Mapper>> {
    (0..count)
        .map(|_| Box::new(map_fn(Some)) as Box<dyn Mapper>)
        .collect()
}

/// Mappers without a run: each delta moves from list to list.
pub fn mapped_alone(mappers: &mut [Box<dyn Mapper>]) {
    let (mut deltas, mut mapped) = (Vec::new(), Vec::new());
    for _ in 0..DELTAS {
        deltas.push(Delta::Text(WORD.to_owned()));
        for mapper in &mut *mappers {
            while let Some(delta) = deltas.pop() {
                mapper.map(delta, &mut mapped).unwrap();
            }
            std::mem::swap(&mut deltas, &mut mapped);
        }
        black_box(&mut deltas).clear();
    }
}

/// Reads a run to its end; returns the number of bytes sent to a client.
pub fn serve(server: &AgUi, bytes: &mut Vec<u8>) -> usize {
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
        sent + bytes.len()
    })
}

/// Each in its own thread.
pub fn input() -> RunAgentInput {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    let thread = format!("thread {}", THREADS.fetch_add(1, Relaxed));
    RunAgentInput::new(thread, "run", [Message::user("m1", "Talk.")])
}
