use std::time::Duration;

use crate::bounds;

/// Limits of requests and of waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In bytes.
    pub(super) body: usize,
    /// In which a body has to arrive.
    pub(super) body_time: Duration,
    /// In levels of arrays and objects.
    pub(super) nesting: usize,
    /// Of JSON, in a body.
    pub(super) values: usize,
    /// At once.
    pub(super) runs: usize,
    /// At once, of one principal.
    pub(super) runs_per_principal: usize,
    pub(super) run_time: Duration,
    /// For which a client may take nothing.
    pub(super) read_time: Duration,
    pub(super) keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: bounds::BODY,
            body_time: bounds::BODY_TIME,
            nesting: bounds::NESTING,
            values: bounds::VALUES,
            runs: bounds::RUNS,
            runs_per_principal: bounds::RUNS_PER_PRINCIPAL,
            run_time: bounds::RUN_TIME,
            read_time: bounds::READ_TIME,
            keep_alive: Duration::from_secs(15),
        }
    }
}
