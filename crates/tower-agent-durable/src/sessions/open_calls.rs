//! The agreement of a session and a journal inside it on the calls that were open before a run: the
//! journal may repeat them, the session alone may not.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tower_agent::callback::{Callback, before_agent};
use tower_agent::{AgentRequest, Error, ErrorKind, Request, RunContext};

use super::store::SessionStore;
use super::writer::Writer;
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
    /// Cancelled when the run has left its session, which another run may then have.
    over: CancellationToken,
}

impl OpenCalls {
    pub(super) fn new<S: SessionStore>(
        writer: Arc<Mutex<Writer<S>>>,
        over: CancellationToken,
    ) -> Self {
        Self(Arc::new(InSession { writer, over }))
    }

    /// Lets a journal inside find them.
    pub(super) fn offer(&self, context: &RunContext) {
        context.values().set(KEY, self.clone());
    }

    /// Returns the open calls of a run's session, if the run has one.
    pub(crate) fn of(context: &RunContext) -> Option<Self> {
        let found = context.values().get::<Self>(KEY).ok().flatten();
        found.map(|calls| (*calls).clone())
    }

    /// Stores that a journal will know which of the calls were started, before the first one is.
    pub(crate) async fn note_journal(&self) -> Result<(), StoreError> {
        self.0.note().await
    }

    /// Notes that the journal has taken over the run of a lost process.
    pub(crate) async fn take_over(&self) {
        self.0.take_over().await;
    }

    /// Returns a guard that fails a run whose journal has not taken it over: it may repeat calls.
    pub(super) fn guard(&self) -> impl Callback<AgentRequest> {
        let calls = self.0.clone();
        // Inside the journal's layer, which has had its chance to take the run over.
        before_agent(move |request: &mut AgentRequest| {
            let calls = calls.clone();
            let run = request.context().run_id().to_owned();
            async move {
                if calls.are_lost().await {
                    return Err(without_journal(&run));
                }
                Ok(())
            }
        })
        .guard()
    }
}

/// Returns the error of a run that is made again without the journal that it had.
pub(super) fn without_journal(run: &str) -> Error {
    let message = format!(
        "the process of run `{run}` died, and only its journal knows which calls had started: give the \
         agent that journal, or let the model read that their outcome is unknown, with another run id"
    );
    Error::new(ErrorKind::InvalidRequest, message)
}

impl<S: SessionStore> Known for InSession<S> {
    fn note(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async {
            let mut writer = self.writer.lock().await;
            // Without open calls there is nothing to agree on, and no write to pay for.
            if self.over.is_cancelled() || !writer.resumes || writer.is_journaled {
                return Ok(());
            }
            writer.is_journaled = true;
            writer.claim().await
        })
    }

    fn take_over(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.writer.lock().await.is_lost = false })
    }

    fn are_lost(&self) -> BoxFuture<'_, bool> {
        Box::pin(async { self.writer.lock().await.is_lost })
    }
}
