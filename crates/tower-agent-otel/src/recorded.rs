use std::sync::Arc;
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry::trace::SpanRef;
use tower_agent::Request;
use tracing::Span;

use crate::telemetry::Telemetry;

/// A kind of call that is recorded.
pub(crate) trait Recorded: Request {
    /// The data of a call in progress, from which its end is recorded.
    type Record: Send;

    /// Its span starts when the call [has begun](Self::has_begun), and not with the call.
    const STARTS_LATER: bool = false;

    /// Creates the span, with the attributes that a sampler decides by: later ones come too late
    /// for it. The attributes are computed only if the span is enabled.
    fn span(request: &Self, telemetry: &Telemetry) -> Span;

    /// Begins a call. `context` is the context of everything that runs inside it.
    fn begin(
        request: &mut Self,
        span: &Span,
        telemetry: &Arc<Telemetry>,
        context: &mut Context,
    ) -> Self::Record;

    /// Returns whether the call has reached its target, and its span has started.
    fn has_begun(_: &Self::Record) -> bool {
        true
    }

    /// Sets the attributes of the request that no sampler needs; called for recorded spans only.
    fn describe(_: &Self, _: &Telemetry, _: &SpanRef<'_>) {}

    /// Returns the `error.type` of a response that reports a failure.
    fn error_type(response: &Self::Response) -> Option<&'static str>;

    /// Returns whether a response says that the call goes on when a question is answered.
    fn is_waiting(_: &Self::Response) -> bool {
        false
    }

    /// Ends a call: sets the attributes of the response, and records the metrics. `span` is
    /// `None` if it is not recorded.
    fn end(
        record: &mut Self::Record,
        response: Option<&Self::Response>,
        ending: &Ending,
        telemetry: &Telemetry,
        span: Option<&SpanRef<'_>>,
    );

    /// Emits the event of a failed call.
    fn emit_exception(error_type: &'static str, message: Option<&str>);
}

/// The end of a call, and the time after which it came.
pub(crate) struct Ending {
    pub(crate) error_type: Option<&'static str>,
    /// It waits for an answer, and has not been executed.
    pub(crate) is_waiting: bool,
    pub(crate) duration: Duration,
}
