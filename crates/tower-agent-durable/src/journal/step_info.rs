use std::time::SystemTime;

use super::step_id::StepId;

/// A step of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StepInfo {
    /// Its name.
    pub id: StepId,
    /// The step may be repeated if it does not finish.
    pub is_repeatable: bool,
    /// The number of the attempt.
    pub attempt: u32,
    /// The time at which it was begun.
    pub begun_at: SystemTime,
    /// The time at which it ended; `None` if it has not.
    pub ended_at: Option<SystemTime>,
}
