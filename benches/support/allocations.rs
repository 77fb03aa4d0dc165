//! Counts the allocations of the current thread.

#![allow(dead_code, reason = "every bench uses a part of this")]

use allocation_counter::measure;

/// Number and total bytes of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    pub count: usize,
    pub bytes: usize,
}

/// Returns the allocations of `run` on this thread.
pub fn of<T>(run: impl FnOnce() -> T) -> Allocations {
    let info = measure(|| drop(run()));
    Allocations {
        count: info.count_total as usize,
        bytes: info.bytes_total as usize,
    }
}

/// Returns the peak bytes allocated by `run` on this thread.
pub fn peak<T>(run: impl FnOnce() -> T) -> usize {
    measure(|| drop(run())).bytes_max as usize
}

/// Returns what `run` allocated on this thread and did not free.
pub fn live(run: impl FnOnce()) -> Allocations {
    let info = measure(run);
    Allocations {
        count: info.count_current as usize,
        bytes: info.bytes_current as usize,
    }
}

/// Returns how many allocations of `run` on this thread are still live after it.
pub fn left<T>(run: impl FnOnce() -> T) -> i64 {
    measure(|| drop(run())).count_current
}
