use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use tower_agent::AgentRequest;
use tower_agent::error::{BoxError, Interrupt};
use tower_agent_conversations::{
    ConversationInfo, ConversationKey, ConversationQuery, SessionLayer,
};

/// The store of the conversations of an inbox.
pub(super) trait Place: Send + Sync {
    /// Returns a page of those that wait.
    fn list<'a>(
        &'a self,
        query: &'a ConversationQuery,
    ) -> BoxFuture<'a, Result<Vec<ConversationInfo>, BoxError>>;

    /// Returns the open interrupts of one, if it waits and is of this inbox.
    fn open<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>, BoxError>>;

    /// Returns the request that continues one, with the outcomes of what has expired.
    fn request<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BoxFuture<'a, Result<AgentRequest, BoxError>>;
}

/// The sessions of an application.
pub(super) struct Sessions {
    pub(super) layer: SessionLayer,
    pub(super) app: Arc<str>,
}

impl Place for Sessions {
    fn list<'a>(
        &'a self,
        query: &'a ConversationQuery,
    ) -> BoxFuture<'a, Result<Vec<ConversationInfo>, BoxError>> {
        async move {
            if query.app.as_ref().is_some_and(|app| *app != self.app) {
                return Ok(Vec::new());
            }
            let query = query.clone().app(self.app.clone());
            Ok(self.layer.list(&query).await?)
        }
        .boxed()
    }

    fn open<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>, BoxError>> {
        async move {
            if key.app != self.app {
                return Ok(Vec::new());
            }
            let session = self.layer.load(key).await?;
            // A run that has it was given the answers that there are.
            let waits = session.filter(|session| !session.is_running);
            let open = waits.map(|session| session.checkpoint.head.interrupts);
            Ok(open.unwrap_or_default())
        }
        .boxed()
    }

    fn request<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BoxFuture<'a, Result<AgentRequest, BoxError>> {
        async move {
            // The layer adds the outcomes.
            let request = key.request(AgentRequest::default());
            // The run that waits goes on, and no other begins: a journal has it under its id.
            let session = self.layer.load(key).await?;
            Ok(match session.and_then(|session| session.run) {
                Some(run) => request.with_run_id(run),
                None => request,
            })
        }
        .boxed()
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
        query: &'a ConversationQuery,
    ) -> BoxFuture<'a, Result<Vec<ConversationInfo>, BoxError>> {
        async move {
            let mut waiting = Vec::new();
            for run in self.runs.waiting(&self.agent).await? {
                // The question stands in the inbox of the session or the thread.
                if run.conversation.is_some() {
                    continue;
                }
                let user = run.user.unwrap_or_default();
                let key = ConversationKey::new(run.agent, user, run.id);
                let info = ConversationInfo::new(key, 0, run.updated_at).waiting(true);
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

    fn open<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BoxFuture<'a, Result<Vec<Interrupt>, BoxError>> {
        use crate::journal::JournalError;

        async move {
            let run = match self.runs.get(run_key(key)).await {
                Err(JournalError::UnknownRun { .. }) => return Ok(Vec::new()),
                run => run?,
            };
            let is_of_inbox = run.agent == self.agent && run.conversation.is_none();
            if key.app != self.agent || !is_of_inbox {
                return Ok(Vec::new());
            }
            // None while it runs.
            Ok(run.interrupts)
        }
        .boxed()
    }

    fn request<'a>(
        &'a self,
        key: &'a ConversationKey,
    ) -> BoxFuture<'a, Result<AgentRequest, BoxError>> {
        async move { Ok(self.runs.request(run_key(key)).await?) }.boxed()
    }
}

/// Returns the key of a run from the key of its questions.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn run_key(key: &ConversationKey) -> crate::journal::RunKey {
    let user = Some(key.user.clone()).filter(|user| !user.is_empty());
    crate::journal::RunKey::new(key.id.clone()).with_user(user)
}
