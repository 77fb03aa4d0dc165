use std::sync::Arc;

use opentelemetry::trace::{SpanRef, Status, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use tokio::time::Instant;
use tower_agent::error::{Error, ErrorKind, Result};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::names::{attribute, error_type};
use crate::recorded::{Ending, Recorded};
use crate::telemetry::Telemetry;

/// A call that has begun. It ends once: with its result, or when it is dropped.
pub(crate) struct OpenCall<R: Recorded> {
    telemetry: Arc<Telemetry>,
    record: R::Record,
    span: Span,
    /// The context of what is inside, with the span.
    context: Context,
    began: Instant,
    has_ended: bool,
}

impl<R: Recorded> OpenCall<R> {
    pub(crate) fn begin(request: &mut R, telemetry: Arc<Telemetry>) -> Self {
        let span = R::span(request, &telemetry);
        let mut context = span.context();
        if !context.span().span_context().is_valid() {
            // Without a subscriber, spans of `opentelemetry` alone go on.
            context = Context::current();
        }
        let record = R::begin(request, &telemetry, &mut context);
        let this = Self {
            telemetry,
            record,
            span,
            context,
            began: Instant::now(),
            has_ended: false,
        };
        if let Some(span) = this.recording() {
            let run = request.context();
            if let Some(id) = this.telemetry.conversation_id(run) {
                span.set_attribute(KeyValue::new(attribute::CONVERSATION_ID, id));
            }
            R::describe(request, &this.telemetry, &span);
        }
        this
    }

    /// Returns the span, if it is recorded.
    fn recording(&self) -> Option<SpanRef<'_>> {
        (!self.span.is_disabled())
            .then(|| self.context.span())
            .filter(SpanRef::is_recording)
    }

    /// Runs code of the call in its span.
    pub(crate) fn inside<T>(&self, code: impl FnOnce() -> T) -> T {
        let _entered = self.span.enter();
        let _attached = self.context.clone().attach();
        code()
    }

    pub(crate) fn end(&mut self, result: &Result<R::Response>) {
        let error_type = match result {
            Ok(response) => R::error_type(response),
            Err(error) => error_type_of(error),
        };
        self.close(result.as_ref().ok(), error_type, result.as_ref().err());
    }

    fn close(
        &mut self,
        response: Option<&R::Response>,
        error_type: Option<&'static str>,
        error: Option<&Error>,
    ) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let ending = Ending {
            error_type,
            duration: self.began.elapsed(),
        };
        let span = (!self.span.is_disabled()).then(|| self.context.span());
        let span = span.filter(SpanRef::is_recording);
        R::end(
            &mut self.record,
            response,
            &ending,
            &self.telemetry,
            span.as_ref(),
        );
        if let (Some(error), Some(error_type)) = (error, error_type) {
            let message = self.telemetry.has_content.then(|| error.message());
            self.span
                .in_scope(|| R::tell_exception(error_type, message));
        }
        let Some(span) = span else { return };
        if let Some(error_type) = error_type {
            span.set_attribute(KeyValue::new(attribute::ERROR_TYPE, error_type));
            span.set_status(Status::error(error_type));
        }
        // Not when the last handle of it is dropped: a task that a tool has left behind may have
        // one.
        span.end();
    }
}

fn error_type_of(error: &Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::Interrupted | ErrorKind::InvocationEnded => None,
        ErrorKind::Other => Some(error_type::OTHER),
        kind => Some(kind.code()),
    }
}

impl<R: Recorded> Drop for OpenCall<R> {
    fn drop(&mut self) {
        self.close(None, Some(error_type::CANCELLED), None);
    }
}
