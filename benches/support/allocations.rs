//! Counts what the current thread allocates.

#![allow(dead_code, reason = "every bench uses a part of this")]

use allocation_counter::measure;

/// So many allocations of so many bytes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    pub count: usize,
    pub bytes: usize,
}

/// What `run` allocates on this thread.
pub fn of<T>(run: impl FnOnce() -> T) -> Allocations {
    let info = measure(|| drop(run()));
    Allocations { count: info.count_total as usize, bytes: info.bytes_total as usize }
}

/// The most bytes that `run` holds at a time, of those it allocates on this thread.
pub fn peak<T>(run: impl FnOnce() -> T) -> usize {
    measure(|| drop(run())).bytes_max as usize
}

/// How many allocations of `run`, on this thread, are still held after it.
pub fn left<T>(run: impl FnOnce() -> T) -> i64 {
    measure(|| drop(run())).count_current
}
