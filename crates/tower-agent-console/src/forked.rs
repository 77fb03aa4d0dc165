//! The data that marks the run of a fork, and its conversation.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tower_agent::error::{Error, ErrorKind, Result};
use tower_agent::{ModelRequest, Request, RunContext, Settings};

/// The key of the mark in a fork's conversation, which tells it from one of a user.
pub(crate) const MARK: &str = "tower_agent_console.fork";

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
    /// What is set in these, in place of the agent's own.
    Settings(Box<Settings>),
    /// These alone.
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

/// Fails if a conversation is that of a fork, and the run does not guard its tools.
pub(crate) fn check(context: &RunContext) -> Result<()> {
    let is_guarded = context.extensions().get::<Forked>().is_some();
    if is_guarded {
        return Ok(());
    }
    let mark = context
        .private_state()
        .read(MARK, |mark| mark.map(Value::to_string));
    match mark {
        None => Ok(()),
        Some(origin) => Err(Error::new(
            ErrorKind::InvalidRequest,
            format!(
                "the conversation is that of a fork of a recorded run, {origin}, whose tools are \
                 not to be called by themselves: resume it with `Fork::resume`, or begin another \
                 with its messages and `Checkpoint::new`"
            ),
        )),
    }
}
