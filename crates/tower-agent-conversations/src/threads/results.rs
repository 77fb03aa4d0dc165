use std::collections::BTreeMap;
use std::sync::Arc;

use super::thread::Thread;

/// The results of a thread's calls that count: of two results of one call, the later. Each is found
/// by the message with the call and the call's id.
#[derive(Default)]
pub(crate) struct Results(BTreeMap<(usize, Arc<str>), usize>);

impl Results {
    pub(crate) fn of(thread: &Thread) -> Self {
        let mut results = Self::default();
        for index in 0..thread.log.len() {
            results.note(thread, index);
        }
        results
    }

    /// Records an entry if it is a result. Returns the one that it replaces.
    pub(crate) fn note(&mut self, thread: &Thread, index: usize) -> Option<usize> {
        let entry = thread.entry(index)?;
        let calling = entry.answers?;
        let result = entry.message.as_ref()?.tool_results().next()?;
        self.0.insert((calling, result.call_id.clone()), index)
    }

    /// Returns the result of a call.
    pub(crate) fn get(&self, calling: usize, call: &Arc<str>) -> Option<usize> {
        self.0.get(&(calling, call.clone())).copied()
    }

    /// Returns the results, each with the message that has its call.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0
            .iter()
            .map(|((calling, _), index)| (*calling, *index))
    }

    /// Returns all results, by the message with the call.
    pub(crate) fn by_message(&self) -> BTreeMap<usize, Vec<usize>> {
        let mut all: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (calling, index) in self.iter() {
            all.entry(calling).or_default().push(index);
        }
        all
    }
}
