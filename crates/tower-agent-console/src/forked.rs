//! The data that a fork gives its run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_agent::{ModelRequest, Request, Settings};

/// The run that another one is a fork of.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ForkOf {
    pub(crate) run: Arc<str>,
    pub(crate) step: usize,
}

/// Given to the run of a fork, whose tools are guarded.
#[derive(Clone)]
pub(crate) struct Forked {
    pub(crate) origin: ForkOf,
    /// The user of the origin, whose words it has.
    pub(crate) user: Option<Arc<str>>,
    pub(crate) edits: Edits,
}

/// The changes of model calls, each for those of one agent.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Edits(Vec<(Arc<str>, Edit)>);

/// A change of model calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Edit {
    Instructions(Arc<str>),
    /// The settings that are set here, in place of the agent's own.
    Settings(Box<Settings>),
    /// These settings alone.
    AllSettings(Box<Settings>),
}

impl Edits {
    /// Adds a change of the model calls of an agent, named by its path.
    pub(crate) fn add(&mut self, agent: Arc<str>, edit: Edit) {
        self.0.push((agent, edit));
    }

    pub(crate) fn apply(&self, request: &mut ModelRequest) {
        for (agent, edit) in &self.0 {
            if **agent != *request.context().path() {
                continue;
            }
            match edit {
                Edit::Instructions(text) => request.set_instructions(Some(text.clone())),
                Edit::Settings(settings) => {
                    let all = (**settings).clone().or(request.settings());
                    *request.settings_mut() = all;
                }
                Edit::AllSettings(settings) => {
                    request.settings_mut().clone_from(settings);
                }
            }
        }
    }
}
