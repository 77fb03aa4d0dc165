use std::sync::{Arc, Mutex};

use tokio::sync::watch;

use crate::lock::lock;
use tower_agent::message::ProviderData;
use tower_agent::stream::{Delta, EventKind, Piece};

/// The deltas of a call so far, for everybody who follows it.
#[derive(Debug)]
pub(super) struct Log {
    state: Mutex<LogState>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct LogState {
    /// The number of attempts that were taken back.
    attempt: usize,
    /// The pieces of the attempt that is visible.
    pieces: Vec<Piece>,
    /// The ids of its tool calls.
    calls: Vec<Arc<str>>,
}

/// The place of a follower in a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    attempt: usize,
    pieces: usize,
}

/// A step of a log.
pub(super) enum Step {
    Piece(Piece),
    /// The pieces so far were taken back.
    Discarded,
}

impl Log {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the next step for a follower.
    pub(super) fn next(&self, position: &mut Position) -> Option<Step> {
        let state = lock(&self.state);
        if position.attempt != state.attempt {
            *position = Position {
                attempt: state.attempt,
                pieces: 0,
            };
            return Some(Step::Discarded);
        }
        let piece = state.pieces.get(position.pieces)?;
        position.pieces += 1;
        Some(Step::Piece(piece.clone()))
    }

    /// Adds an event of the call.
    pub(super) fn add(&self, event: EventKind) {
        lock(&self.state).add(event);
        self.changed.send_replace(());
    }
}

impl LogState {
    fn add(&mut self, event: EventKind) {
        match event {
            EventKind::TextDelta { text, .. } => self.pieces.push(Delta::Text(text).into()),
            EventKind::ReasoningDelta { text, .. } => {
                self.pieces.push(Delta::Reasoning(text).into());
            }
            EventKind::ReasoningEnd { .. } => {
                // Its provider data is in the response.
                let end = Piece::ReasoningEnd(ProviderData::default());
                self.pieces.push(end);
            }
            EventKind::ToolCallStart(call) => {
                let start = Delta::ToolCall {
                    index: self.calls.len(),
                    id: call.call_id,
                    name: call.name,
                };
                self.pieces.push(start.into());
                self.calls.push(call.id);
            }
            EventKind::ToolCallDelta { id, json } => {
                if let Some(index) = self.calls.iter().position(|call| *call == id) {
                    self.pieces.push(Delta::Arguments { index, json }.into());
                }
            }
            EventKind::AttemptDiscarded { .. } => {
                self.attempt += 1;
                self.pieces.clear();
                self.calls.clear();
            }
            _ => {}
        }
    }
}
