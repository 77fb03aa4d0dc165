use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry::metrics::Meter;
use serde_json::Value;
use tower_agent::context::ConversationId;
use tower_agent::{RunContext, Settings};

use crate::metrics::Metrics;
use crate::target::Target;

/// Returns the id of a run's conversation.
pub(crate) type IdOf = dyn Fn(&RunContext) -> Option<String> + Send + Sync;

/// The key of the conversation's id in its private state.
const CONVERSATION: &str = "tower_agent_otel.conversation_id";

/// The maximum number of agents whose targets are remembered: a program may make up names of
/// agents.
const MAX_TARGETS: usize = 1024;

/// The options and instruments that all calls share.
pub(crate) struct Telemetry {
    pub(crate) has_content: bool,
    /// The provider of models that do not report theirs, if it is known.
    provider: Option<Arc<str>>,
    conversation_id: Option<Arc<IdOf>>,
    pub(crate) metrics: Metrics,
    /// Nobody receives the metrics.
    is_unmetered: bool,
    /// The model that each agent has called last, by the agent's path.
    targets: Mutex<HashMap<String, Target>>,
}

impl Telemetry {
    pub(crate) fn new(
        has_content: bool,
        provider: Option<Arc<str>>,
        conversation_id: Option<Arc<IdOf>>,
        meter: &Meter,
        is_unmetered: bool,
    ) -> Self {
        Self {
            has_content,
            provider,
            conversation_id,
            metrics: Metrics::new(meter),
            is_unmetered,
            targets: Mutex::default(),
        }
    }

    /// Returns whether somebody receives the metrics.
    pub(crate) fn is_metered(&self) -> bool {
        !self.is_unmetered
    }

    /// Returns the id of the conversation that a call belongs to. An id that the run has not been
    /// given is that of the conversation's first run.
    pub(crate) fn conversation_id(&self, run: &RunContext) -> String {
        let given = match &self.conversation_id {
            Some(id) => id(run),
            None => run.extensions().get().map(ConversationId::to_string),
        };
        let private = run.private_state();
        let kept = private.get(CONVERSATION);
        let kept = kept.as_ref().and_then(Value::as_str);
        let id = given
            .or_else(|| kept.map(str::to_owned))
            .unwrap_or_else(|| run.run_id().to_owned());
        // Private state is part of the checkpoint, and neither extensions nor the session's state
        // are: a run that goes on later would otherwise be in another conversation. A sub-agent may
        // have been given an id of its own, which is not that of the run.
        let is_outermost = !run.path().contains('/');
        if is_outermost && kept != Some(&*id) {
            private.set(CONVERSATION, id.clone());
        }
        id
    }

    /// Returns what is known of a model call's target before the call.
    pub(crate) fn target_of(&self, settings: &Settings) -> Target {
        Target {
            provider: self.provider.clone(),
            model: settings.model.as_deref().map(Into::into),
            server: None,
        }
    }

    /// Returns what the last model call of this agent has reached, as the next one probably will. A
    /// model tells when it is called, which is too late for a sampler.
    pub(crate) fn last_target(&self, run: &RunContext) -> Target {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        targets.get(run.path()).cloned().unwrap_or_default()
    }

    /// Remembers what a model call of an agent has reached.
    pub(crate) fn remember(&self, path: &str, target: &Target) {
        let mut targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = targets.get_mut(path) {
            known.clone_from(target);
        } else if targets.len() < MAX_TARGETS {
            targets.insert(path.to_owned(), target.clone());
        }
    }
}
