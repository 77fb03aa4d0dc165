use std::sync::Arc;

use opentelemetry::metrics::Meter;
use serde_json::Value;
use tower_agent::context::ConversationId;
use tower_agent::{RunContext, Settings};

use crate::metrics::Metrics;
use crate::target::Target;

/// Returns the id of a run's conversation, or of its user.
pub(crate) type IdOf = dyn Fn(&RunContext) -> Option<String> + Send + Sync;

/// The key of the conversation's id in its private state.
const CONVERSATION: &str = "tower_agent_otel.conversation_id";

/// The options and instruments that all calls share.
pub(crate) struct Telemetry {
    pub(crate) has_content: bool,
    /// The provider of models that do not report theirs, if it is known.
    provider: Option<Arc<str>>,
    conversation_id: Option<Arc<IdOf>>,
    user_id: Option<Arc<IdOf>>,
    pub(crate) metrics: Metrics,
    /// Nobody receives the metrics.
    is_unmetered: bool,
}

impl Telemetry {
    pub(crate) fn new(
        has_content: bool,
        provider: Option<Arc<str>>,
        conversation_id: Option<Arc<IdOf>>,
        user_id: Option<Arc<IdOf>>,
        meter: &Meter,
        is_unmetered: bool,
    ) -> Self {
        Self {
            has_content,
            provider,
            conversation_id,
            user_id,
            metrics: Metrics::new(meter),
            is_unmetered,
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

    /// Returns the user of a run, if the program tells users.
    pub(crate) fn user_id(&self, run: &RunContext) -> Option<String> {
        let user = self.user_id.as_ref()?;
        user(run).filter(|user| !user.is_empty())
    }

    /// Returns what is known of a model call's target, if the model does not tell it.
    pub(crate) fn target_of(&self, settings: &Settings) -> Target {
        Target {
            provider: self.provider.clone(),
            model: settings.model.as_deref().map(Into::into),
            server: None,
        }
    }
}
