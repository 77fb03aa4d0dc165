use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::plan::broken;
use tower_agent::ModelRequest;
use tower_agent::call::Request;
use tower_agent::error::Result;
use tower_agent::stream::{Delta, Mapper};

/// A cut of a call, of which one attempt is cut.
#[derive(Debug, Default)]
pub(super) struct Cut {
    attempts: AtomicU32,
    is_done: AtomicBool,
}

impl Cut {
    /// Returns whether the cut has been made, so that a response is that of a later attempt.
    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }
}

/// Cuts the stream of the first attempt at a call after this many deltas, or at its end.
pub(super) fn cut(request: &mut ModelRequest, after: usize) -> Arc<Cut> {
    let cut = Arc::<Cut>::default();
    let of_attempts = cut.clone();
    // In a band of its own: the cut is where the model is, and mappers outside see what is before
    // it.
    request.enter_band();
    request.map_deltas(move || {
        let number = of_attempts.attempts.fetch_add(1, Ordering::Relaxed);
        Breaking {
            cut: of_attempts.clone(),
            left: (number == 0).then_some(after),
        }
    });
    cut
}

/// Breaks an attempt.
struct Breaking {
    cut: Arc<Cut>,
    /// The number of deltas until it breaks, if it does.
    left: Option<usize>,
}

impl Breaking {
    fn strike(&self) -> Result<()> {
        self.cut.is_done.store(true, Ordering::Relaxed);
        Err(broken())
    }
}

impl Mapper for Breaking {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<()> {
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return self.strike();
            }
            *left -= 1;
        }
        out.push(delta);
        Ok(())
    }

    fn flush(&mut self, _: &mut Vec<Delta>) -> Result<()> {
        match self.left {
            Some(_) => self.strike(),
            None => Ok(()),
        }
    }
}
