use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::request::AgentRequest;
use crate::call::Request;
use crate::context::State;
use crate::conversation::Checkpoint;
use crate::error::Resolution;
use crate::message::Messages;
use crate::model::Settings;
use crate::version::Version;

/// An [`AgentRequest`] as data, from which another process can make the request again: the
/// conversation, the settings, the session's state, the resolutions and the run's id.
///
/// It has neither the tools, the callbacks nor the answer format that were added for the run;
/// whoever makes the request again adds them. Like a [`Checkpoint`], it has a version, and contains
/// the conversation's private state.
///
/// ```
/// use serde_json::json;
/// use tower_agent::agent::SavedRequest;
/// use tower_agent::{AgentRequest, Request, State};
///
/// let state = State::from_iter([("units".to_owned(), json!("metric"))]);
/// let request = AgentRequest::new("Rain in Oslo?").with_state(state).with_run_id("run 7");
/// let saved = serde_json::to_string(&SavedRequest::from(&request))?;
///
/// let request: AgentRequest = serde_json::from_str::<SavedRequest>(&saved)?.into();
/// assert_eq!(request.context().run_id(), "run 7");
/// assert_eq!(request.context().state().get("units"), Some("metric".into()));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedRequest {
    #[serde(default)]
    version: Version<1>,
    run_id: Arc<str>,
    checkpoint: Checkpoint,
    #[serde(default)]
    settings: Arc<Settings>,
    #[serde(
        default,
        skip_serializing_if = "Map::is_empty",
        serialize_with = "crate::depth::serialize"
    )]
    state: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    resolutions: Vec<Resolution>,
}

impl SavedRequest {
    /// Returns the run's id.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Returns the conversation that the run begins with.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Returns the answers to the interrupts of the run before.
    #[must_use]
    pub fn resolutions(&self) -> &[Resolution] {
        &self.resolutions
    }

    /// Sets the messages, for a store that has them apart from the request. Nothing else changes:
    /// they are those that it was saved with.
    #[must_use]
    pub fn with_messages(mut self, messages: Messages) -> Self {
        self.checkpoint.messages = messages;
        self
    }
}

impl From<&AgentRequest> for SavedRequest {
    fn from(request: &AgentRequest) -> Self {
        let context = request.context();
        Self {
            version: Version,
            run_id: context.run_id().into(),
            checkpoint: Checkpoint::before(
                &request.record,
                request.messages(),
                context.private_state().snapshot(),
            ),
            settings: Arc::new(request.settings().clone()),
            state: context.state().snapshot(),
            resolutions: context.resolutions(),
        }
    }
}

impl From<SavedRequest> for AgentRequest {
    fn from(saved: SavedRequest) -> Self {
        let SavedRequest {
            run_id,
            checkpoint,
            settings,
            state,
            resolutions,
            ..
        } = saved;
        Self::resume(checkpoint)
            .with_settings(settings)
            .with_state(State::from(state))
            .with_resolutions(resolutions)
            .with_run_id(run_id)
    }
}
