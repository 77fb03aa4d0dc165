use std::time::Duration;

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
    pub(super) run_time: Option<Duration>,
    pub(super) keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            body_time: Duration::from_secs(30),
            nesting: 64,
            values: 1 << 15,
            runs: 1000,
            runs_per_principal: 100,
            run_time: None,
            keep_alive: Duration::from_secs(15),
        }
    }
}
