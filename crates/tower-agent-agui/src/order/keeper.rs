use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use super::chunks::Chunks;
use super::lanes::Stream;
use super::sequence::Sequence;
use super::violation::Violation;
use crate::wire::{Event, EventKind, RunError};

/// Keeps the events of one run in order: see the [module](crate::order).
///
/// An event that continues an open entity costs one look-up and no allocation.
#[derive(Clone, Debug)]
pub struct OrderKeeper {
    sequence: Sequence,
    chunks: Chunks,
    /// The entity that the last event continued, so that the next one needs no look-up.
    current: Option<Current>,
}

/// The entity that accepts content without checks.
#[derive(Clone, Debug)]
struct Current {
    kind: Discriminant<EventKind>,
    id: Arc<str>,
    owner: Option<Arc<str>>,
}

impl Current {
    fn of(event: &Event) -> Option<Self> {
        let (id, _) = event.kind.piece()?;
        Some(Self {
            kind: discriminant(&event.kind),
            id: id.clone(),
            owner: event.subagent_run_id().cloned(),
        })
    }

    /// Returns whether the event continues this entity.
    ///
    /// Ids are compared by address, which is much cheaper for every piece of a streamed text. Equal
    /// ids at other addresses only take the longer way, with the same result.
    fn is_of(&self, event: &Event) -> bool {
        let Some((id, _)) = event.kind.piece() else {
            return false;
        };
        Arc::ptr_eq(id, &self.id)
            && self.kind == discriminant(&event.kind)
            && match (&self.owner, event.subagent_run_id()) {
                (None, None) => true,
                (Some(owner), Some(other)) => Arc::ptr_eq(owner, other),
                (None, Some(_)) | (Some(_), None) => false,
            }
    }
}

impl OrderKeeper {
    /// Creates a keeper for the run `run_id` of the thread `thread_id`.
    #[must_use]
    pub fn new(thread_id: impl Into<Arc<str>>, run_id: impl Into<Arc<str>>) -> Self {
        Self {
            sequence: Sequence::new(thread_id.into(), run_id.into()),
            chunks: Chunks::default(),
            current: None,
        }
    }

    /// Takes the next event and appends the resulting events to `out`.
    ///
    /// # Errors
    ///
    /// Fails if the event is out of order and cannot be repaired. Events already in `out` may be
    /// sent, and the keeper is in the state before the event. To end the run, pass the error to
    /// [`fail`](Self::fail).
    pub fn push(&mut self, event: Event, out: &mut Vec<Event>) -> Result<(), Violation> {
        if self.goes_on(&event) {
            out.push(event);
            return Ok(());
        }
        // Cleared first: an event that is rejected below may have ended the current entity.
        self.current = None;
        if self.sequence.is_over() {
            return Ok(());
        }
        self.sequence.start_before(&event, out);
        if let Some(stream) = Stream::of_chunk(&event.kind) {
            return self.chunks.expand(stream, event, &mut self.sequence, out);
        }
        if !self.chunks.is_empty() {
            self.chunks.close_before(&event, &mut self.sequence, out);
        }
        let current = Current::of(&event);
        self.sequence.emit(event, out)?;
        // Set only now: a rejected event must not let the next piece pass unchecked.
        self.current = current;
        Ok(())
    }

    /// Ends the run with `RUN_ERROR`, unless it has ended.
    pub fn fail(&mut self, error: impl Into<RunError>, out: &mut Vec<Event>) {
        // An error event is never rejected.
        let _ = self.push(Event::from(error.into()), out);
    }

    /// Ends the stream of events. A run without a terminal event fails with the code `UNFINISHED`.
    pub fn finish(&mut self, out: &mut Vec<Event>) {
        let error =
            RunError::new("the run stopped without a terminal event").with_code("UNFINISHED");
        self.fail(error, out);
    }

    /// Returns whether the terminal event was emitted. No event follows it.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sequence.is_over()
    }

    /// Returns whether the event continues the current entity and passes unchanged.
    pub(crate) fn goes_on(&self, event: &Event) -> bool {
        self.current
            .as_ref()
            .is_some_and(|current| current.is_of(event))
    }
}
