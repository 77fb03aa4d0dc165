//! Forks of the runs that a console has.

use std::sync::Arc;

use tower_agent::error::Error;

use crate::address::{address, without_nul};
use crate::console::{Console, Found, parsed};
use crate::fork::Fork;
use crate::lock::lock;
use crate::not_recorded::NotRecorded;
use crate::past::Past;
use crate::stored::{StoredPlace, StoredQuery};

/// The number of runs that have made a call, the latest ones, among which the one is sought that
/// went on with another.
const MADE_BY: u32 = 200;

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
    /// left out, if there is no such run or step, or if the [database](Self::stored_in) does not
    /// answer.
    pub async fn fork(&self, run: &str, step: usize) -> Result<Fork, NotRecorded> {
        let past = self.past(run).await?;
        let later = self.later(&past).await?;
        Fork::of(&past, &later, step)
    }

    /// Returns what a fork may change at a step.
    #[cfg(feature = "inbox")]
    pub(crate) async fn step(
        &self,
        run: &str,
        step: usize,
    ) -> Result<serde_json::Value, NotRecorded> {
        crate::fork::shown(&self.past(run).await?, step)
    }

    /// Returns a recorded run, from memory, or from the database if it has more of it.
    pub(crate) async fn past(&self, id: &str) -> Result<Past, NotRecorded> {
        let not_read = |error: Error| NotRecorded::NotRead {
            run: id.to_owned(),
            reason: error.to_string(),
        };
        let recent = match self.inner.find(id).await.map_err(not_read)? {
            Found::Nowhere => None,
            Found::Stored(database, head) => {
                let entries = database.calls(&head.key).await.map_err(not_read)?;
                return Past::stored(&head, entries);
            }
            Found::Recent(number) => {
                let store = lock(&self.inner.collector.store);
                store.runs.get(&number).map(|run| Past::of(&store, run))
            }
        };
        recent.ok_or_else(|| NotRecorded::UnknownRun { run: id.to_owned() })
    }

    /// Returns the runs that have gone on with one after it had waited for answers, in their order.
    async fn later(&self, past: &Past) -> Result<Vec<Past>, NotRecorded> {
        let mut later: Vec<Past> = Vec::new();
        loop {
            let last = later.last().unwrap_or(past);
            let waiting = last.waiting();
            let Some(next) = self.next(&waiting, &last.place).await? else {
                return Ok(later);
            };
            later.push(self.past(&next).await?);
        }
    }

    /// Returns the first run behind this place that has made one of these calls. A fork has made it
    /// for itself.
    async fn next(
        &self,
        calls: &[Arc<str>],
        place: &StoredPlace,
    ) -> Result<Option<String>, NotRecorded> {
        let mut found: Option<(StoredPlace, String)> = None;
        let mut offer = |other: StoredPlace, id: String| {
            let is_first = found.as_ref().is_none_or(|(first, _)| other < *first);
            if other > *place && is_first {
                found = Some((other, id));
            }
        };
        {
            let store = lock(&self.inner.collector.store);
            for run in store.runs.values() {
                let has_made = calls.iter().any(|call| run.tools.contains_key(call));
                if has_made && run.summary.fork_of.is_none() {
                    offer(store.place(&run.summary), run.summary.id.to_string());
                }
            }
        }
        if let Some(database) = self.inner.database.get() {
            for call in calls {
                let query = StoredQuery {
                    call: Some(without_nul(call)),
                    limit: MADE_BY,
                    ..StoredQuery::default()
                };
                let heads = database.insist(database.store.list(&query)).await;
                let heads = heads.map_err(|error| NotRecorded::NotRead {
                    run: call.to_string(),
                    reason: error.to_string(),
                })?;
                for head in heads {
                    if parsed(&head.summary)["fork_of"].is_null() {
                        offer(head.place(), address(&head));
                    }
                }
            }
        }
        Ok(found.map(|(_, id)| id))
    }
}
