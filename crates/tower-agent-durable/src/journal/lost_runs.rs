use std::time::SystemTime;

use futures_util::stream::{self, StreamExt};
use tower::ServiceExt;
use tower_agent::AgentResponse;
use tower_agent::agent::AgentService;
use tower_agent::error::{BoxError, Error, Result};
use tower_agent_conversations::Policy;

use super::error::JournalError;
use super::run_info::RunInfo;
use super::run_query::RunQuery;
use super::run_status::RunStatus;
use super::runs::Runs;

/// The number of lost runs that go on at once.
const AT_ONCE: usize = 8;

impl Runs {
    /// Goes on with the runs whose processes have died, of those that a query selects. Returns them
    /// with their results, in any order. Call it when a server starts, and in an interval of a
    /// minute or so: of several servers that do, one goes on with each run.
    ///
    /// The agent is the one that began the runs: with its session layer around it if they are in
    /// sessions, which then have the result. A session is free when its
    /// [lease](tower_agent_conversations::SessionLayer::lease) has ended: until then its run has a
    /// [`Conflict`](tower_agent::ErrorKind::Conflict) here. Runs of threads are left alone: the
    /// next request of their client continues the thread.
    ///
    /// A run with a call that cannot be repeated waits for an answer afterwards, as described for
    /// [the journal](crate::journal#what-is-repeated).
    ///
    /// ```
    /// use tower::Layer;
    /// use tower_agent_conversations::SessionLayer;
    /// use tower_agent_durable::Sqlite;
    /// use tower_agent_durable::journal::{Durable, RunQuery};
    /// # use tower_agent::Agent;
    /// # use tower_agent_test::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tower_agent::BoxError> {
    /// let database = Sqlite::in_memory().await?;
    /// # let model = ScriptedModel::new([]);
    /// let clerk = Agent::builder(model)
    ///     .name("clerk")
    ///     .global_callbacks(Durable::new(database.clone()))
    ///     .build()?;
    /// let chat = SessionLayer::new(database.clone()).layer(clerk);
    ///
    /// for (run, result) in database.runs().resume_lost(&RunQuery::of_agent("clerk"), chat).await? {
    ///     if let Err(error) = result {
    ///         println!("run {} has not gone on: {error}", run.id);
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the database cannot be read. What has gone wrong with one run is its result.
    pub async fn resume_lost(
        &self,
        query: &RunQuery,
        agent: impl AgentService,
    ) -> Result<Vec<(RunInfo, Result<AgentResponse>)>, JournalError> {
        let mut query = query.clone().status(RunStatus::Running);
        let mut lost = Vec::new();
        loop {
            let page = self.list(&query).await?;
            let Some(last) = page.last() else { break };
            query = query.after(last);
            let now = SystemTime::now();
            let is_lost = |run: &RunInfo| !run.is_alive(now) && run.policy != Some(Policy::Thread);
            lost.extend(page.into_iter().filter(is_lost));
        }
        let resumed = lost.into_iter().map(|run| {
            let agent = agent.clone();
            async move {
                let result = self.resume(&run, agent).await;
                Some((run, result.transpose()?))
            }
        });
        let resumed = stream::iter(resumed).buffer_unordered(AT_ONCE);
        Ok(resumed.filter_map(std::future::ready).collect().await)
    }

    /// Goes on with a run, unless another process does.
    pub(super) async fn resume(
        &self,
        run: &RunInfo,
        agent: impl AgentService,
    ) -> Result<Option<AgentResponse>> {
        if !self.claim(run).await? {
            return Ok(None);
        }
        let request = self.request(run).await?;
        let response = agent.oneshot(request).await;
        response.map(Some).map_err(|error| {
            let error: BoxError = error.into();
            Error::from(error)
        })
    }
}
