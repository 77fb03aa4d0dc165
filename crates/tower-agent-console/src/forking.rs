//! Forks of the runs that a console has.

use crate::console::Console;
use crate::fork::Fork;
use crate::lock::lock;
use crate::not_recorded::NotRecorded;
use crate::record::Run;
use crate::store::Store;

impl Console {
    /// Returns a run that goes on from a step of a recorded one, given by the id that the page
    /// shows. The steps are counted by the run's model calls, in the order in which they began: 0
    /// is the beginning of the run, `n` is after `n` of them and the tools that they have called,
    /// and the number of all of them is the end.
    ///
    /// Nothing happens to the run, nor to a stored conversation that it belongs to: the fork has a
    /// run id of its own, and is stored nowhere by itself.
    ///
    /// # Errors
    ///
    /// Fails if [content](Self::record_content) was not recorded, if what the step is made of was
    /// left out, or if there is no such run or step.
    pub fn fork(&self, run: &str, step: usize) -> Result<Fork, NotRecorded> {
        self.with_run(run, |store, run| Fork::of(store, run, step))
    }

    /// Returns what a fork may change at a step.
    #[cfg(feature = "inbox")]
    pub(crate) fn step(&self, run: &str, step: usize) -> Result<serde_json::Value, NotRecorded> {
        self.with_run(run, |_, run| crate::fork::shown(run, step))
    }

    /// Looks at a run in memory.
    pub(crate) fn with_run<T>(
        &self,
        id: &str,
        look: impl FnOnce(&Store, &Run) -> Result<T, NotRecorded>,
    ) -> Result<T, NotRecorded> {
        self.inner.collector.collect();
        let store = lock(&self.inner.collector.store);
        let run = store
            .run(id)
            .ok_or_else(|| NotRecorded::UnknownRun { run: id.to_owned() })?;
        look(&store, run)
    }
}
