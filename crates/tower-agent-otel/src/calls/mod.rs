//! What is recorded of each kind of call.

mod agent;
mod model;
mod tool;

use std::sync::Arc;

use opentelemetry::Context;
use opentelemetry::metrics::Meter;
use opentelemetry::trace::SpanRef;
use tower_agent::{Request, RunContext};
use tracing::Span;

pub(crate) use self::model::Innermost;
use crate::metrics::Metrics;
use crate::open_call::Ending;
use crate::open_telemetry::ConversationId;

/// What all calls share.
pub(crate) struct Telemetry {
    pub(crate) has_content: bool,
    provider: Arc<str>,
    conversation_id: Option<Arc<ConversationId>>,
    metrics: Metrics,
}

impl Telemetry {
    pub(crate) fn new(
        has_content: bool,
        provider: String,
        conversation_id: Option<Arc<ConversationId>>,
        meter: &Meter,
    ) -> Self {
        let metrics = Metrics::new(meter);
        Self { has_content, provider: provider.into(), conversation_id, metrics }
    }

    pub(crate) fn conversation_id(&self, run: &RunContext) -> Option<String> {
        self.conversation_id.as_ref().and_then(|id| id(run))
    }
}

/// A kind of call that is recorded.
pub(crate) trait Recorded: Request {
    /// What is known of a call before it ends.
    type Record: Send;

    /// Creates the span, with what a sampler may look at.
    fn span(request: &Self, telemetry: &Telemetry) -> Span;

    /// Begins a call. `context` is that of everything inside.
    fn begin(request: &mut Self, telemetry: &Arc<Telemetry>, context: &mut Context)
    -> Self::Record;

    /// Sets what is known of the request.
    fn describe(request: &Self, telemetry: &Telemetry, span: &SpanRef<'_>);

    /// Returns the type of the error that a response is.
    fn error_type(response: &Self::Response) -> Option<&'static str>;

    /// Ends a call: sets what is known of the response, and records the metrics.
    fn end(
        record: &mut Self::Record,
        response: Option<&Self::Response>,
        ending: &Ending,
        telemetry: &Telemetry,
        span: Option<&SpanRef<'_>>,
    );

    /// Emits the event of a failed call.
    fn tell_exception(error_type: &'static str, message: Option<&str>);
}
