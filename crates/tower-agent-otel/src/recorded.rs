use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::SpanRef;
use tower_agent::Request;
use tracing::Span;

use crate::telemetry::Telemetry;

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

/// How a call ended.
pub(crate) struct Ending {
    pub(crate) error_type: Option<&'static str>,
    pub(crate) duration: Duration,
}
