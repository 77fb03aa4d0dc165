use std::collections::BTreeMap;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::extensions::Extensions;
use super::inherited::Inherited;
use super::nesting::Nesting;
use crate::error::{Error, ErrorKind, Resolution};
use crate::state::State;

/// The settings of a request for its run. The run chooses those that are not set.
#[derive(Clone, Default)]
pub(crate) struct Given {
    pub(crate) id: Option<Arc<str>>,
    pub(crate) state: Option<State>,
    pub(crate) private_state: Option<State>,
    pub(crate) token: Option<CancellationToken>,
    pub(super) resolutions: Option<Resolutions>,
    pub(crate) extensions: Extensions,
}

/// By their ids. In order, so that a replay sees the same one.
pub(super) type Resolutions = Arc<BTreeMap<String, Resolution>>;

/// The settings of a part of a run. The parts inside it begin with the same.
#[derive(Clone)]
pub(crate) struct PartSettings {
    pub(super) token: CancellationToken,
    /// The caller's token for this part of the run, if there is one.
    pub(crate) own_token: Option<CancellationToken>,
    pub(super) resolutions: Option<Resolutions>,
    pub(super) extensions: Extensions,
    /// The reason why no agent can be called with these.
    pub(crate) misfit: Option<Error>,
    pub(crate) nesting: Nesting,
    pub(super) max_iterations: u32,
    /// The key of the state under which the agent keeps what its model says.
    pub(crate) output_key: Option<Arc<str>>,
    /// The callbacks and rules that the agent at work hands down.
    pub(crate) inherited: Inherited,
}

impl PartSettings {
    /// Applies the settings of a request inside the run with this id.
    pub(super) fn apply(&mut self, given: &Given, run: &str) {
        if let Some(more) = &given.resolutions {
            let all = Arc::make_mut(self.resolutions.get_or_insert_default());
            all.extend((**more).clone());
        }
        self.extensions.extend(&given.extensions);
        if let Some(token) = &given.token {
            // A child, so that the run's token cancels this part as well.
            self.token = self.token.child_token();
            self.own_token = Some(token.clone());
        }
        // Settings of a whole run, and this is a part of another.
        let whole = [
            given.id.as_ref().map(|_| "a run id"),
            given.state.as_ref().map(|_| "a state"),
            given
                .private_state
                .as_ref()
                .map(|_| "a checkpoint with private state"),
        ];
        if let Some(what) = whole.into_iter().flatten().next() {
            let message = format!(
                "the request is part of run `{run}` and was given {what} of its own: leave that \
                 out, or leave out the context to make it a run of its own",
            );
            self.misfit = Some(Error::new(ErrorKind::InvalidRequest, message));
        }
    }
}
