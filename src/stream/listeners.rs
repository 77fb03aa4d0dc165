use std::future::Future;

use super::emitter::EventEmitter;
use super::event::EventKind;
use super::observed::Observed;

/// Everybody who is told what happens in an agent: the consumer of a stream, and observers.
#[derive(Clone)]
pub(crate) struct Listeners {
    pub(crate) emitter: Option<EventEmitter>,
    pub(crate) observed: Option<Observed>,
}

impl Listeners {
    /// Tells all of them what has happened, and then waits for the consumer.
    //
    // Not an async fn, which would store the event.
    pub(crate) fn tell(&self, kind: EventKind) -> impl Future<Output = ()> {
        if let Some(observed) = &self.observed {
            observed.tell(kind.clone());
        }
        let emitting = self.emitter.as_ref().map(|emitter| emitter.emit(kind));
        async move {
            if let Some(emitting) = emitting {
                emitting.await;
            }
        }
    }

    /// Tells all of them without waiting.
    pub(crate) fn note(&self, kind: EventKind) {
        if let Some(observed) = &self.observed {
            observed.tell(kind.clone());
        }
        if let Some(emitter) = &self.emitter {
            emitter.note(kind);
        }
    }
}
