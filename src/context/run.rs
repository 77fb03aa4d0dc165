use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

use super::lease::Lease;
use super::replay::ReplayHandlers;
use super::settings::Given;
use super::values::Values;
use crate::error::Error;
use crate::state::State;
use crate::stream::ObservedRun;

/// Data shared by a whole tree of agents.
pub(super) struct Run {
    pub(super) id: Arc<str>,
    pub(super) state: State,
    pub(super) private_state: State,
    /// Somebody wants to know which messages the private state was saved with.
    pub(super) notes_messages: AtomicBool,
    pub(super) values: Arc<Values>,
    pub(super) token: CancellationToken,
    pub(super) lease: OnceLock<Lease>,
    /// The error that has ended the whole run: an abort, or the cancellation of its token.
    pub(super) aborted: OnceLock<Error>,
    pub(super) replay_handlers: ReplayHandlers,
    begun: OnceLock<()>,
    conversations: AtomicU32,
    /// The run as its observers see it, once it has one.
    observed: OnceLock<Arc<ObservedRun>>,
}

impl Run {
    /// Creates a run. Data that is not given is that of an earlier one, if there is one.
    pub(super) fn new(given: Given, token: CancellationToken, earlier: Option<&Self>) -> Self {
        let id = given.id.or_else(|| Some(earlier?.id.clone()));
        let state = given.state.or_else(|| Some(earlier?.state.clone()));
        let private_state = given
            .private_state
            .or_else(|| Some(earlier?.private_state.clone()));
        Self {
            id: id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string().into()),
            state: state.unwrap_or_default(),
            private_state: private_state.unwrap_or_default(),
            notes_messages: AtomicBool::new(false),
            values: earlier
                .map(|earlier| earlier.values.clone())
                .unwrap_or_default(),
            token,
            lease: earlier
                .map(|earlier| earlier.lease.clone())
                .unwrap_or_default(),
            aborted: OnceLock::new(),
            replay_handlers: ReplayHandlers::default(),
            begun: OnceLock::new(),
            conversations: AtomicU32::new(0),
            observed: OnceLock::new(),
        }
    }

    /// Marks that the first agent is called: from now on changes of the state are events.
    pub(super) fn begin(&self) {
        self.begun.get_or_init(|| self.state.begin());
    }

    pub(super) fn observed(&self) -> Arc<ObservedRun> {
        let new = || ObservedRun::new(self.id.clone());
        self.observed.get_or_init(new).clone()
    }

    /// Returns the number of another conversation of the run's caller, from 0.
    pub(super) fn next_conversation(&self) -> u32 {
        self.conversations.fetch_add(1, Ordering::Relaxed)
    }
}
