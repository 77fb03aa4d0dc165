use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tower_agent::AgentRequest;
use tower_agent::error::{BoxError, Interrupt};
use tower_agent_threads::{ThreadInfo, ThreadKey, ThreadQuery};

use crate::sessions::{SESSION, Session, SessionStore};
use crate::threads::{key_of, list};

/// Where the conversations of an inbox are stored.
pub(super) trait Place: Send + Sync {
    /// Returns a page of those that wait.
    fn list<'a>(
        &'a self,
        query: &'a ThreadQuery,
    ) -> BoxFuture<'a, Result<Vec<ThreadInfo>, BoxError>>;

    /// Returns the open interrupts of one, if it waits and is of this inbox.
    fn open<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<Vec<Interrupt>, BoxError>>;

    /// Returns the request that continues one, with the outcomes of what has expired.
    fn request<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<AgentRequest, BoxError>>;
}

/// The sessions of an application.
pub(super) struct Sessions<S> {
    pub(super) store: Arc<S>,
    pub(super) app: Arc<str>,
}

impl<S: SessionStore> Place for Sessions<S> {
    fn list<'a>(
        &'a self,
        query: &'a ThreadQuery,
    ) -> BoxFuture<'a, Result<Vec<ThreadInfo>, BoxError>> {
        async move {
            if query
                .server
                .as_ref()
                .is_some_and(|server| *server != self.app)
            {
                return Ok(Vec::new());
            }
            let query = query.clone().server(self.app.clone());
            list(&*self.store, SESSION, &query).await
        }
        .boxed()
    }

    fn open<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<Vec<Interrupt>, BoxError>> {
        async move {
            if key.server != self.app {
                return Ok(Vec::new());
            }
            let session = Session::load(&*self.store, &key_of(key)?).await?;
            // A run that has it was given the answers that there are.
            let waits = session.filter(|session| !session.is_running);
            let open = waits.map(|session| session.checkpoint.head.interrupts);
            Ok(open.unwrap_or_default())
        }
        .boxed()
    }

    fn request<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<AgentRequest, BoxError>> {
        // The layer adds the outcomes.
        let request = key_of(key).map(|key| key.request(AgentRequest::default()));
        std::future::ready(request).boxed()
    }
}

/// The durable runs of an agent.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) struct DurableRuns {
    pub(super) runs: crate::journal::Runs,
    pub(super) agent: Arc<str>,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl Place for DurableRuns {
    fn list<'a>(
        &'a self,
        query: &'a ThreadQuery,
    ) -> BoxFuture<'a, Result<Vec<ThreadInfo>, BoxError>> {
        async move {
            let mut waiting = Vec::new();
            for run in self.runs.waiting(&self.agent).await? {
                let key = ThreadKey::new(run.agent, run.id).with_principal(run.user);
                let info = ThreadInfo::new(key, run.updated_at, true);
                if query.selects(&info) {
                    waiting.push(info);
                }
            }
            // As the stores of threads order theirs.
            waiting.sort_by(|a, b| (b.updated_at, &b.key).cmp(&(a.updated_at, &a.key)));
            waiting.truncate(usize::try_from(query.limit).unwrap_or(usize::MAX));
            Ok(waiting)
        }
        .boxed()
    }

    fn open<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<Vec<Interrupt>, BoxError>> {
        use crate::journal::JournalError;

        async move {
            let run = match self.runs.get(run_key(key)).await {
                Err(JournalError::UnknownRun { .. }) => return Ok(Vec::new()),
                run => run?,
            };
            if key.server != self.agent || run.agent != self.agent {
                return Ok(Vec::new());
            }
            // None while it runs.
            Ok(run.interrupts)
        }
        .boxed()
    }

    fn request<'a>(&'a self, key: &'a ThreadKey) -> BoxFuture<'a, Result<AgentRequest, BoxError>> {
        async move { Ok(self.runs.request(run_key(key)).await?) }.boxed()
    }
}

/// Returns the key of a run from the key of its questions.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn run_key(key: &ThreadKey) -> crate::journal::RunKey {
    crate::journal::RunKey::new(key.thread.clone()).with_user(key.principal.clone())
}
