use super::rules::Remaining;
use crate::error::{Error, Result};

/// The remaining callbacks of a phase that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// All.
    All,
    /// All, but only decisions of guards take effect.
    Notify,
    /// Only guards.
    Guards,
}

/// The decisions of a phase so far: of the `before`s, the `after`s or the `on_error`s of a call.
pub(super) struct PhaseDecisions<T> {
    /// The response that a callback has returned. In a box, as hooks return it: a call that nobody
    /// answers keeps no space for it.
    pub(super) response: Option<Box<T>>,
    /// The first error of a hook, if later hooks run after it.
    pub(super) error: Option<Error>,
    pub(super) mode: Mode,
}

impl<T> PhaseDecisions<T> {
    pub(super) fn new(mode: Mode) -> Self {
        Self {
            response: None,
            error: None,
            mode,
        }
    }

    /// Applies a rule to the remaining callbacks.
    pub(super) fn apply(&mut self, remaining: Remaining) {
        match remaining {
            Remaining::Run => {}
            // Callbacks that are skipped already stay so.
            Remaining::Notify if self.mode == Mode::All => self.mode = Mode::Notify,
            Remaining::Notify => {}
            Remaining::Skip => self.mode = Mode::Guards,
        }
    }

    /// Handles a failed hook. Returns `Err` if the phase ends with it.
    pub(super) fn fail(&mut self, error: Error, remaining: Remaining) -> Result<()> {
        if remaining == Remaining::Skip {
            return Err(self.error.take().unwrap_or(error));
        }
        self.apply(remaining);
        self.error.get_or_insert(error);
        Ok(())
    }

    /// Ends the phase. Returns the response, unless an error takes precedence.
    pub(super) fn finish(self) -> Result<Option<Box<T>>> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.response),
        }
    }
}
