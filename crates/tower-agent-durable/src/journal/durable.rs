use std::future::Future;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::to_raw_value;
use tokio::sync::Semaphore;
use tower_agent::callback::Bundle;
use tower_agent::context::Effects;
use tower_agent::{Result, RunContext};

use super::error::JournalError;
use super::fingerprint::Fingerprint;
use super::intent::Intent;
use super::journal::{Journal, StepState};
use super::known_messages::LatestMessages;
use super::record::{StepOutcome, StepRecord};
use super::run_service::DurableRunLayer;
use super::step_id::StepKind;
use super::step_service::DurableLayer;
use super::steps::Steps;
use super::unfinished::AnswerUnfinished;
use tower_agent_conversations::StoreError;

/// The default number of runs at once.
const MAX_RUNS: usize = 1000;

/// Makes runs durable: a run that has stopped continues in another process, with what its model and
/// tool calls have returned. See the [module](super).
///
/// Pass it to [`global_callbacks`](tower_agent::AgentBuilder::global_callbacks) of the outermost
/// agent.
#[derive(Clone, Debug)]
pub struct Durable<J> {
    journal: J,
    runs: Arc<Semaphore>,
    version: Option<Arc<str>>,
    latest: LatestMessages,
}

impl<J: Journal> Durable<J> {
    /// Creates one with a journal, such as a `Sqlite` or `Postgres` database.
    #[must_use]
    pub fn new(journal: J) -> Self {
        Self {
            journal,
            runs: Arc::new(Semaphore::new(MAX_RUNS)),
            version: None,
            latest: LatestMessages::default(),
        }
    }

    /// Sets the version of the program, which each run has that it starts or goes on with. Defaults
    /// to none. It decides nothing: it is for the [queries](super::RunQuery::version) of those who
    /// [upgrade](crate::guide::deployment#rolling-upgrades), so that each version goes on with its
    /// own runs, and the last ones of an earlier version are found.
    #[must_use]
    pub fn version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Sets the maximum number of runs at once in this process, of this value and its clones.
    /// Defaults to 1,000. Further runs wait for their turn, before anything is written or paid for.
    /// A run that starts another one counts for both, and waits for it: set the limit higher than
    /// the number of such runs.
    #[must_use]
    pub fn max_runs(mut self, runs: usize) -> Self {
        let runs = runs.clamp(1, Semaphore::MAX_PERMITS);
        self.runs = Arc::new(Semaphore::new(runs));
        self
    }

    /// Returns a value that is computed once in a run, such as the time, a random number or the
    /// content of a file. If the run is started again, it is the same value.
    ///
    /// Use it in callbacks and agents for what decides how a run continues. A request that resumes
    /// the run computes the value again. A tool needs it only for what its call must not change
    /// while it waits for an answer: in a tool call, the value stays the same until the call has
    /// returned. Values of the same name in one turn or call are told apart by their order.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tower_agent::{Result, RunContext};
    /// use tower_agent_durable::Sqlite;
    /// use tower_agent_durable::journal::Durable;
    ///
    /// async fn began(durable: &Durable<Sqlite>, context: &RunContext) -> Result<SystemTime> {
    ///     durable.value(context, "began", async || Ok(SystemTime::now())).await
    /// }
    /// # drop(began);
    /// ```
    ///
    /// # Errors
    ///
    /// Fails with the error of `make`, which is called again the next time, or with that of the
    /// journal.
    pub async fn value<T, F, O>(&self, context: &RunContext, name: &str, make: F) -> Result<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> O,
        O: Future<Output = Result<T>>,
    {
        let steps = Steps::of(context, || format!("value `{name}`"))?;
        let step = steps.name(StepKind::Value(name.into()), context)?;
        // `make` takes no arguments that could be compared, so the fingerprint is empty.
        let intent = Intent {
            fingerprint: Fingerprint::default(),
            is_repeatable: true,
        };
        let lease = match self.journal.begin(&steps.run, &step, &intent).await? {
            StepState::Fresh(lease) | StepState::Unfinished(lease, _) => {
                steps.note_begun();
                lease
            }
            StepState::Done(
                _,
                StepRecord {
                    outcome: StepOutcome::Response(value),
                    ..
                },
            ) => {
                let value = serde_json::from_str(value.get()).map_err(StoreError::data);
                return Ok(value.map_err(JournalError::from)?);
            }
            StepState::Done(
                _,
                StepRecord {
                    outcome: StepOutcome::Error(error),
                    ..
                },
            ) => return Err(error),
        };
        match make().await {
            Ok(value) => {
                let json = to_raw_value(&value).map_err(StoreError::data);
                let outcome = StepOutcome::Response(json.map_err(JournalError::from)?);
                // The caller gets the value only once it is stored: a crash right after must not
                // let the run decide by a value that the next process cannot see.
                self.journal
                    .commit(&lease, &StepRecord::new(outcome, Effects::default(), None))
                    .await?;
                Ok(value)
            }
            Err(error) => {
                // Errors are not replayed: the next try computes the value anew.
                self.journal.release(&lease).await?;
                Err(error)
            }
        }
    }
}

impl<J: Journal> From<Durable<J>> for Bundle {
    fn from(durable: Durable<J>) -> Self {
        let Durable {
            journal,
            runs,
            version,
            latest,
        } = durable;
        // The layers stand around everything else, so that a replayed call skips all of it. The
        // answer to a question stands innermost, since callbacks around the tool must see its
        // response.
        Self::new()
            .journal(
                DurableRunLayer {
                    journal: journal.clone(),
                    runs,
                    version,
                    latest,
                },
                DurableLayer(journal.clone()),
                DurableLayer(journal),
            )
            .innermost_tool(AnswerUnfinished)
    }
}
