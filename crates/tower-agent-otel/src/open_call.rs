use std::sync::Arc;

use opentelemetry::trace::{SpanRef, Status, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use tokio::time::Instant;
use tower_agent::error::{Error, ErrorKind, Result};
use tracing::level_filters::LevelFilter;
use tracing::{Id, Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Registry;

use crate::names::{attribute, error_type};
use crate::recorded::{Ending, Recorded};
use crate::telemetry::Telemetry;

/// A call in progress. It ends once: with its result, or as cancelled when it is dropped.
pub(crate) struct OpenCall<R: Recorded> {
    telemetry: Arc<Telemetry>,
    record: R::Record,
    span: Span,
    /// The context that is current while the call is polled: with the span, once it has started.
    context: Context,
    has_started: bool,
    began: Instant,
    has_ended: bool,
}

impl<R: Recorded> OpenCall<R> {
    /// Begins a call; returns `None` if nobody hears of it.
    pub(crate) fn begin(request: &mut R, telemetry: &Arc<Telemetry>) -> Option<Box<Self>> {
        // Before the span is made: where a crate of the program turns on `log`, the macro computes
        // the fields of a span that nobody receives as well.
        if is_unheard(telemetry) {
            return None;
        }
        let span = R::span(request, telemetry);
        if span.is_disabled() && !telemetry.is_metered() && !are_failures_received() {
            return None;
        }
        let mut context = if R::STARTS_LATER {
            Context::current()
        } else {
            started(&span)
        };
        let record = R::begin(request, &span, telemetry, &mut context);
        let call = Self {
            telemetry: telemetry.clone(),
            record,
            span,
            context,
            has_started: !R::STARTS_LATER,
            began: Instant::now(),
            has_ended: false,
        };
        // Attributes cost allocations: not for a span that is filtered out or not sampled.
        if call.has_started
            && let Some(span) = call.recording()
        {
            R::describe(request, &call.telemetry, &span);
        }
        Some(Box::new(call))
    }

    /// Returns the span, if it is recorded.
    fn recording(&self) -> Option<SpanRef<'_>> {
        // A disabled span has the caller's context, whose span is not this call's to change.
        if self.span.is_disabled() {
            return None;
        }
        Some(self.context.span()).filter(SpanRef::is_recording)
    }

    /// Returns whether the call has begun since it was last polled, and its span is to be entered.
    pub(crate) fn has_just_begun(&self) -> bool {
        !self.has_started && R::has_begun(&self.record)
    }

    /// Runs code of the call in its span.
    pub(crate) fn inside<T>(&mut self, code: impl FnOnce() -> T) -> T {
        if self.has_just_begun() {
            self.start();
        }
        if !self.has_started {
            let _noted = Noted::enter(&self.span);
            return code();
        }
        // Both: `tracing` takes parents from the entered span, and code that uses `opentelemetry`
        // directly takes them from the attached context.
        let _entered = self.span.enter();
        let _attached = self.context.clone().attach();
        code()
    }

    fn start(&mut self) {
        self.has_started = true;
        self.context = started(&self.span);
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
        // `drop` comes here as well, after a call that has ended.
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let is_waiting = match (response, error) {
            (Some(response), _) => R::is_waiting(response),
            (None, Some(error)) => error.kind() == ErrorKind::Interrupted,
            (None, None) => false,
        };
        let ending = Ending {
            error_type,
            is_waiting,
            duration: self.began.elapsed(),
        };
        if !self.has_started {
            self.start();
        }
        // Not `recording()`, which would borrow all of `self`: `end` takes the record mutably.
        let span = if self.span.is_disabled() {
            None
        } else {
            Some(self.context.span()).filter(SpanRef::is_recording)
        };
        R::end(
            &mut self.record,
            response,
            &ending,
            &self.telemetry,
            span.as_ref(),
        );
        if let (Some(error), Some(error_type)) = (error, error_type) {
            // The text of an error may quote a prompt or a result, so that it counts as content.
            let message = self.telemetry.has_content.then(|| error.message());
            self.span
                .in_scope(|| R::emit_exception(error_type, message));
        }
        let Some(span) = span else { return };
        if let Some(error_type) = error_type {
            span.set_attribute(KeyValue::new(attribute::ERROR_TYPE, error_type));
            span.set_status(Status::error(error_type));
        }
        if is_waiting {
            span.set_attribute(KeyValue::new(attribute::WAITING, true));
        }
        // Explicitly, and not when the last handle is dropped: a task that a tool has left behind
        // may hold one for as long as it runs.
        span.end();
    }
}

/// Starts a span, if it has not started, and returns the context of everything inside it.
fn started(span: &Span) -> Context {
    let context = span.context();
    if context.span().span_context().is_valid() {
        return context;
    }
    // Without a subscriber that exports, the span has no context. Keeping the caller's leaves a
    // trace that `opentelemetry` alone has begun unbroken.
    Context::current()
}

/// A span that has not started and is the one whose events are noted, until this is dropped.
///
/// `Span::enter` would start it, and its kind, which is not known yet, cannot change afterwards. So
/// the registry alone is told, which knows where an event belongs, and not the layers above it.
struct Noted<'a>(&'a Span);

impl<'a> Noted<'a> {
    fn enter(span: &'a Span) -> Self {
        in_registry(span, Registry::enter);
        Self(span)
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        in_registry(self.0, Registry::exit);
    }
}

/// Calls the registry of a span. There is none below a subscriber of another kind, whose spans are
/// not exported.
fn in_registry(span: &Span, call: fn(&Registry, &Id)) {
    span.with_subscriber(|(id, subscriber)| {
        if let Some(registry) = subscriber.downcast_ref() {
            call(registry, id);
        }
    });
}

/// Returns whether nobody can receive anything of any call.
pub(crate) fn is_unheard(telemetry: &Telemetry) -> bool {
    let are_spans_received = LevelFilter::current() >= LevelFilter::INFO;
    !are_spans_received && !telemetry.is_metered() && !are_failures_received()
}

/// Returns whether somebody receives the events of failed calls, which have a level of their own.
fn are_failures_received() -> bool {
    tracing::event_enabled!(target: "tower_agent_otel", tracing::Level::WARN)
}

fn error_type_of(error: &Error) -> Option<&'static str> {
    match error.kind() {
        // Neither is a failure: the run goes on later, or a callback has ended it on purpose.
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
