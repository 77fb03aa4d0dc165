//! Redaction.

mod calls;
mod detectors;
mod everywhere;
mod exactness;
mod recordings;
mod runs;
mod streams;

use futures::{FutureExt, StreamExt};
use tower_agent::stream::{self, Attempt, Delta, EventKind, EventStream};
use tower_agent::{Message, ModelRequest};
use tower_agent_middleware::redact::Redact;

/// An answer that is written through a guard, and what is seen of it.
struct Writing {
    attempt: Attempt,
    events: EventStream,
    /// The text that was seen.
    text: String,
    seen: Vec<EventKind>,
}

impl Writing {
    fn through(redact: &Redact) -> Self {
        let (sink, events) = stream::channel(100_000);
        let mut request = ModelRequest::new([Message::user("?")]).with_delta_sender(sink);
        let callbacks = redact.around_model();
        let before = callbacks.run_before(&mut request).now_or_never();
        before.expect("it waits for nothing").map(drop).unwrap();
        let attempt = request.delta_sender().unwrap().open();
        Self {
            attempt,
            events,
            text: String::new(),
            seen: Vec::new(),
        }
    }

    fn send(&mut self, delta: Delta) {
        self.attempt
            .send(delta)
            .now_or_never()
            .expect("there is room")
            .unwrap();
        self.read();
    }

    fn send_text(&mut self, text: &str) {
        self.send(Delta::Text(text.to_owned()));
    }

    fn finish(mut self) -> (String, Vec<EventKind>) {
        let attempt = std::mem::replace(&mut self.attempt, Attempt::unseen());
        attempt
            .finish()
            .now_or_never()
            .expect("there is room")
            .unwrap();
        self.read();
        (self.text, self.seen)
    }

    fn read(&mut self) {
        while let Some(Some(event)) = self.events.next().now_or_never() {
            if let EventKind::TextDelta { text, .. } = &event.kind {
                self.text.push_str(text);
            }
            self.seen.push(event.kind);
        }
    }
}
