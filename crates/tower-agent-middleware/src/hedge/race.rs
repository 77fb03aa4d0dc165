use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tower_agent::ModelRequest;
use tower_agent::call::Request;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::stream::{Delta, Mapper};

/// The race of the attempts at one call, which the first with output wins.
#[derive(Debug, Default)]
pub(super) struct Race(AtomicU8);

/// Stands for no winner.
const NOBODY: u8 = 0;

impl Race {
    /// Returns the number of the attempt that has won.
    pub(super) fn winner(&self) -> Option<u8> {
        let winner = self.0.load(Ordering::Acquire);
        (winner != NOBODY).then_some(winner)
    }

    /// Makes an attempt the winner, unless another is.
    fn claim(&self, attempt: u8) -> bool {
        let claimed = self
            .0
            .compare_exchange(NOBODY, attempt, Ordering::AcqRel, Ordering::Acquire);
        claimed.is_ok() || claimed == Err(attempt)
    }

    /// Returns the request of an attempt, numbered from 1, whose output counts in the race.
    pub(super) fn enter(self: &Arc<Self>, mut request: ModelRequest, attempt: u8) -> ModelRequest {
        if request.delta_sender().is_some() {
            let race = self.clone();
            // In a band of its own: mappers inside act before it, and those outside after it.
            request.enter_band();
            request.map_deltas(move || RaceGate {
                race: race.clone(),
                attempt,
            });
        }
        request
    }
}

/// Lets the deltas of an attempt through if it wins. A model may send them from a task of its own,
/// so looking after each poll would be too late.
struct RaceGate {
    race: Arc<Race>,
    attempt: u8,
}

impl Mapper for RaceGate {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        // Some models begin with an empty delta long before they know the first word.
        if !delta.is_empty() && !self.race.claim(self.attempt) {
            let message = "another attempt at the call has output";
            return Err(Error::new(ErrorKind::Cancelled, message));
        }
        out.push(delta);
        Ok(())
    }
}
