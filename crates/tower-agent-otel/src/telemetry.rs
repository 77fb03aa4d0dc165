use std::sync::Arc;

use opentelemetry::metrics::Meter;
use tower_agent::RunContext;

use crate::metrics::Metrics;

/// Returns the id of a run's conversation.
pub(crate) type ConversationId = dyn Fn(&RunContext) -> Option<String> + Send + Sync;

/// The options and instruments that all calls share.
pub(crate) struct Telemetry {
    pub(crate) has_content: bool,
    pub(crate) provider: Arc<str>,
    conversation_id: Option<Arc<ConversationId>>,
    pub(crate) metrics: Metrics,
}

impl Telemetry {
    pub(crate) fn new(
        has_content: bool,
        provider: String,
        conversation_id: Option<Arc<ConversationId>>,
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
        self.conversation_id.as_ref().and_then(|id| id(run))
    }
}
