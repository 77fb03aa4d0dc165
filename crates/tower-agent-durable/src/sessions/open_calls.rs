//! What a session and a journal inside it tell each other about the calls that were open before a run.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tower_agent::callback::{Callback, before_agent};
use tower_agent::{AgentRequest, Error, ErrorKind, Request, RunContext};

use super::store::SessionStore;
use super::writer::{Progress, Writer};
use crate::error::StoreError;

/// The key among the run's values.
const KEY: &str = "tower_agent_durable.open_calls";

/// The calls of a session that were open before a run, for the journal of that run.
#[derive(Clone)]
pub(crate) struct OpenCalls(Arc<dyn Known>);

trait Known: Send + Sync {
    fn note(&self) -> BoxFuture<'_, Result<(), StoreError>>;

    fn take_over(&self) -> BoxFuture<'_, ()>;

    fn are_lost(&self) -> BoxFuture<'_, bool>;
}

struct InSession<S> {
    writer: Arc<Mutex<Writer<S>>>,
    progress: Progress,
    /// The run has left its session.
    over: CancellationToken,
}

impl OpenCalls {
    pub(super) fn new<S: SessionStore>(
        writer: Arc<Mutex<Writer<S>>>,
        progress: Progress,
        over: CancellationToken,
    ) -> Self {
        Self(Arc::new(InSession {
            writer,
            progress,
            over,
        }))
    }

    /// Lets a journal inside find them.
    pub(super) fn offer(&self, context: &RunContext) {
        context.values().set(KEY, self.clone());
    }

    /// Returns those of the session of a run, if it has one.
    pub(crate) fn of(context: &RunContext) -> Option<Self> {
        let found = context.values().get::<Self>(KEY).ok().flatten();
        found.map(|calls| (*calls).clone())
    }

    /// Stores that a journal is going to know which of them were started, before the first one is.
    pub(crate) async fn note_journal(&self) -> Result<(), StoreError> {
        self.0.note().await
    }

    /// Notes that the journal has the run. What a lost process has left is now the journal's.
    pub(crate) async fn take_over(&self) {
        self.0.take_over().await;
    }

    /// Returns a guard that fails a run which may repeat them, since it has no journal.
    pub(super) fn guard(&self) -> impl Callback<AgentRequest> {
        let calls = self.0.clone();
        let check = move |request: &mut AgentRequest| {
            let (calls, run) = (calls.clone(), request.context().run_id().to_owned());
            async move {
                match calls.are_lost().await {
                    true => Err(without_journal(&run)),
                    false => Ok(()),
                }
            }
        };
        before_agent(check).guard()
    }
}

/// Returns the error of a run that is made again without the journal that it had.
pub(super) fn without_journal(run: &str) -> Error {
    let message = format!(
        "run `{run}` was lost with its process, and which calls it has started is known only to its \
         journal, which did not take it over: give the agent that journal, or let the model read that \
         their outcome is unknown, with another run id"
    );
    Error::new(ErrorKind::InvalidRequest, message)
}

impl<S: SessionStore> Known for InSession<S> {
    fn note(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            let mut writer = self.writer.lock().await;
            if self.over.is_cancelled() || !writer.resumes || writer.is_journaled {
                return Ok(());
            }
            writer.is_journaled = true;
            writer.claim(&self.progress).await
        })
    }

    fn take_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.writer.lock().await.lost = None })
    }

    fn are_lost(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.writer.lock().await.lost.is_some() })
    }
}
