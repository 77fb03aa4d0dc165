use std::time::Duration;

/// Limits of requests and of waiting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In bytes.
    pub(super) body: usize,
    /// In levels of arrays and objects.
    pub(super) nesting: usize,
    pub(super) keep_alive: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            nesting: 64,
            keep_alive: Duration::from_secs(15),
        }
    }
}
