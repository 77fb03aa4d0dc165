use std::sync::Arc;

use opentelemetry::metrics::Meter;
use tower_agent::RunContext;
use tower_agent::context::ConversationId;

use crate::metrics::Metrics;

/// Returns the id of a run's conversation.
pub(crate) type IdOf = dyn Fn(&RunContext) -> Option<String> + Send + Sync;

/// The options and instruments that all calls share.
pub(crate) struct Telemetry {
    pub(crate) has_content: bool,
    pub(crate) provider: Arc<str>,
    conversation_id: Option<Arc<IdOf>>,
    pub(crate) metrics: Metrics,
}

impl Telemetry {
    pub(crate) fn new(
        has_content: bool,
        provider: String,
        conversation_id: Option<Arc<IdOf>>,
        meter: &Meter,
    ) -> Self {
        let metrics = Metrics::new(meter);
        Self {
            has_content,
            provider: provider.into(),
            conversation_id,
            metrics,
        }
    }

    pub(crate) fn conversation_id(&self, run: &RunContext) -> Option<String> {
        match &self.conversation_id {
            Some(id) => id(run),
            None => Some(run.extensions().get::<ConversationId>()?.to_string()),
        }
    }
}
