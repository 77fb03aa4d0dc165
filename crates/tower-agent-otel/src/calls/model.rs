use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use opentelemetry::trace::{SpanRef, TraceContextExt};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use tokio::time::Instant;
use tower_agent::call::{Attempts, CallKind};
use tower_agent::message::Messages;
use tower_agent::model::{ModelTarget, ResponseFormat};
use tower_agent::stream::{ConsumerWait, Delta, Mapper};
use tower_agent::{
    Action, Callback, Error, ModelRequest, ModelResponse, Request, Result, Settings, Usage,
};
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use super::caller::{Caller, Report};
use crate::content;
use crate::metrics::record;
use crate::names::{NO_RESPONSE, UNKNOWN_PROVIDER, attribute, event, exception, operation};
use crate::recorded::{Ending, Recorded};
use crate::target::Target;
use crate::telemetry::Telemetry;

pub(crate) struct ModelRecord {
    caller: Option<Arc<Caller>>,
    /// `None` if neither a span nor metrics are recorded.
    watched: Option<Watched>,
}

impl Recorded for ModelRequest {
    type Record = ModelRecord;

    // Its kind depends on whether a model is called, or a callback or a layer answers.
    const STARTS_LATER: bool = true;

    // The provider, the model and the server are known when the model has told them: attributes
    // cannot be changed, so they are set at the end.
    fn span(request: &Self, telemetry: &Telemetry) -> Span {
        let is_streamed = request.delta_sender().is_some();
        info_span!(
            "chat",
            otel.name = operation::CHAT,
            otel.kind = "internal",
            { attribute::OPERATION_NAME } = operation::CHAT,
            { attribute::REQUEST_STREAM } = is_streamed.then_some(true),
            { attribute::CONVERSATION_ID } = telemetry.conversation_id(request.context()),
            { attribute::RUN_ID } = request.context().run_id(),
            { attribute::ENDUSER_ID } = telemetry.user_id(request.context()),
        )
    }

    fn begin(
        request: &mut Self,
        span: &Span,
        telemetry: &Arc<Telemetry>,
        _: &mut Context,
    ) -> ModelRecord {
        let caller = Caller::current();
        if let Some(caller) = &caller {
            caller.count(CallKind::Model);
        }
        let watched = (!span.is_disabled() || telemetry.is_metered())
            .then(|| Watched::new(telemetry, span, request));
        if let Some(watched) = &watched {
            let extensions = request.extensions_mut();
            // The first is for the model, which reports its provider and name in it; the second is
            // for `Innermost`. Retries and fallbacks between here and there send on both.
            extensions.insert(watched.0.target.clone());
            extensions.insert(watched.clone());
        }
        ModelRecord { caller, watched }
    }

    fn has_begun(call: &ModelRecord) -> bool {
        let mut watched = call.watched.iter();
        watched.any(|watched| watched.0.is_recorded.get().is_some())
    }

    fn error_type(_: &ModelResponse) -> Option<&'static str> {
        None
    }

    fn end(
        call: &mut ModelRecord,
        response: Option<&ModelResponse>,
        ending: &Ending,
        telemetry: &Telemetry,
        span: Option<&SpanRef<'_>>,
    ) {
        let Some(watched) = &call.watched else {
            return;
        };
        *watched.span() = None;
        // As the run counts them: also those whose answer was refused, or never came.
        let attempts = watched.0.attempts.list();
        let is_sent = !attempts.is_empty();
        let used = attempts.iter().map(|attempt| attempt.usage);
        let used = used.fold(Usage::default(), |sum, usage| sum + usage);
        let target = if is_sent {
            watched.reached()
        } else {
            watched.asked()
        };
        let mut seen = watched.lock();
        let mut report = Report::default();
        if let Some(span) = span {
            if let Some(model) = &target.model {
                span.update_name(format!("{} {model}", operation::CHAT));
            }
            span.set_attributes(target.attributes());
            span.set_attributes(std::mem::take(&mut seen.attributes));
            span.set_attributes(usage(used));
            if response.is_some() && !is_sent {
                span.set_attribute(KeyValue::new(attribute::ANSWERED_WITHOUT_MODEL, true));
            }
            // A response of a callback or a cache has no finish reason of a model.
            if is_sent {
                let reason = seen.finish_reason.take();
                let reason = reason.unwrap_or_else(|| NO_RESPONSE.to_owned());
                report.finish_reason = Some(reason.clone());
                let reasons = Value::Array(Array::String(vec![StringValue::from(reason)]));
                span.set_attribute(KeyValue::new(attribute::RESPONSE_FINISH_REASONS, reasons));
            }
            if let Some(id) = seen.response_id.take() {
                span.set_attribute(KeyValue::new(attribute::RESPONSE_ID, id));
            }
            if let Some(time) = seen.first_chunk {
                let time = time.as_secs_f64();
                span.set_attribute(KeyValue::new(attribute::RESPONSE_TIME_TO_FIRST_CHUNK, time));
            }
            if telemetry.has_content {
                report.input = seen.input.take();
                report.output = response.map(|response| response.message().clone());
            }
            if let (Some(response), true) = (response, telemetry.has_content) {
                let messages = content::output(response);
                span.set_attribute(KeyValue::new(attribute::OUTPUT_MESSAGES, messages));
            }
            if let Some(model) = &seen.model {
                span.set_attribute(KeyValue::new(attribute::RESPONSE_MODEL, model.clone()));
            }
        }
        if let Some(caller) = &call.caller {
            caller.report(&report);
        }
        // A call that no model has received is not one of zero seconds and zero tokens.
        if !telemetry.is_metered() || !is_sent {
            return;
        }
        let metrics = &telemetry.metrics;
        let mut attributes = of_metrics(&target);
        if let Some(model) = seen.model.take() {
            attributes.push(KeyValue::new(attribute::RESPONSE_MODEL, model));
        }
        if let Some(time) = seen.first_chunk {
            record(&metrics.time_to_first_chunk, time, &attributes);
        }
        metrics.count(used, &attributes);
        // Only now: the conventions have no `error.type` for the metrics above.
        if let Some(error_type) = ending.error_type {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, error_type));
        }
        metrics.record_tokens(used, &attributes);
        record(&metrics.inference_duration, ending.duration, &attributes);
    }

    fn emit_exception(error_type: &'static str, message: Option<&str>) {
        exception!(event::CLIENT_EXCEPTION, error_type, message);
    }
}

/// Returns the attributes of every metric.
fn of_metrics(target: &Target) -> Vec<KeyValue> {
    let mut attributes = target.attributes();
    attributes.push(KeyValue::new(attribute::OPERATION_NAME, operation::CHAT));
    attributes
}

/// Returns the token counts that are not zero.
fn usage(usage: Usage) -> Vec<KeyValue> {
    let tokens = [
        (attribute::USAGE_INPUT, usage.input_tokens),
        (attribute::USAGE_OUTPUT, usage.output_tokens),
        (attribute::USAGE_CACHE_READ, usage.cached_input_tokens),
        (attribute::USAGE_CACHE_WRITE, usage.cache_write_tokens),
        (attribute::USAGE_REASONING, usage.reasoning_tokens),
    ];
    tokens
        .into_iter()
        .filter(|(_, tokens)| *tokens > 0)
        .map(|(key, tokens)| KeyValue::new(key, whole(tokens)))
        .collect()
}

/// Attributes have no unsigned integers.
fn whole(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A handle of a [`Watch`], for the request's extensions. All clones of a request share it.
#[derive(Clone)]
struct Watched(Arc<Watch>);

/// The observations of one logical call, made by [`Innermost`] at each of its attempts.
struct Watch {
    telemetry: Arc<Telemetry>,
    /// Until it starts. What has a request, such as a response's context, may outlive the call, and
    /// would keep the spans around this one open.
    span: Mutex<Option<Span>>,
    /// The span has started, and this says whether it is recorded.
    is_recorded: OnceLock<bool>,
    target: ModelTarget,
    began: Instant,
    consumer: ConsumerWait,
    attempts: Attempts,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The target of the request that was sent last, as far as its settings have it.
    asked: Target,
    /// The attributes of that request.
    attributes: Vec<KeyValue>,
    /// The finish reason of the response to that request.
    finish_reason: Option<String>,
    model: Option<String>,
    /// The provider's id of that response.
    response_id: Option<String>,
    /// The messages of the first request that was sent, if content is recorded.
    input: Option<Messages>,
    first_chunk: Option<Duration>,
}

impl Watched {
    fn new(telemetry: &Arc<Telemetry>, span: &Span, request: &mut ModelRequest) -> Self {
        let seen = Seen {
            asked: telemetry.target_of(request.settings()),
            ..Seen::default()
        };
        Self(Arc::new(Watch {
            telemetry: telemetry.clone(),
            span: Mutex::new(Some(span.clone())),
            is_recorded: OnceLock::new(),
            target: ModelTarget::default(),
            began: Instant::now(),
            consumer: request.consumer_wait(),
            attempts: request.attempts().map(Attempts::follow).unwrap_or_default(),
            seen: Mutex::new(seen),
        }))
    }

    /// Returns the span of a call that has not reached a model.
    fn span(&self) -> MutexGuard<'_, Option<Span>> {
        self.0.span.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the span of a call that has reached a model, if it has not started. Returns whether
    /// it has.
    fn start(&self) -> bool {
        // Held meanwhile: another attempt, side by side with this one, may come here as well.
        let mut waiting = self.span();
        let Some(span) = waiting.take() else {
            return false;
        };
        if span.is_disabled() {
            return false;
        }
        span.record("otel.kind", "client");
        let is_recorded = span.context().span().is_recording();
        self.0.is_recorded.set(is_recorded).is_ok()
    }

    /// Starts the span of a call that has reached a model, and lets the call go on in it. Returns
    /// whether it is recorded.
    async fn enter(&self) -> bool {
        if self.start() {
            in_next_poll().await;
        }
        self.is_recorded()
    }

    fn is_recorded(&self) -> bool {
        self.0.is_recorded.get() == Some(&true)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the target of a call that has reached none.
    fn asked(&self) -> Target {
        self.lock().asked.clone()
    }

    /// Returns what the call has reached: what the model has reported, or else what was asked for.
    fn reached(&self) -> Target {
        let mut target = Target::reported(&self.0.target).or(self.asked());
        // The conventions require one where a model is called.
        let unknown = || UNKNOWN_PROVIDER.into();
        target.provider.get_or_insert_with(unknown);
        target
    }
}

/// Goes on in the next poll, which the layer outside makes at once, in the span that has started.
async fn in_next_poll() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        // What polls only those that were woken would otherwise pass this one over.
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Observes the requests that are sent, their chunks and the responses, directly around the model:
/// inside all callbacks and layers that change, repeat or answer a request.
pub(crate) struct Innermost;

#[diagnostic::do_not_recommend]
impl Callback<ModelRequest> for Innermost {
    async fn before(&self, request: &mut ModelRequest) -> Result<Action<ModelResponse>> {
        let Some(watched) = request.extensions().get::<Watched>().cloned() else {
            // A layer may have sent a request of its own, without the extensions of the call.
            return Ok(Action::Continue);
        };
        let mut attributes = Vec::new();
        let mut input = None;
        if watched.enter().await {
            attributes.extend(settings(request.settings()));
            if watched.0.telemetry.has_content {
                attributes.extend(content::input(request));
                input = Some(request.messages().clone());
            }
        }
        let mut seen = watched.lock();
        seen.asked = watched.0.telemetry.target_of(request.settings());
        if seen.input.is_none() {
            seen.input = input;
        }
        seen.attributes = attributes;
        // An attempt that fails has neither, not even those of the attempt before.
        seen.finish_reason = None;
        seen.response_id = None;
        drop(seen);
        request.map_deltas(move || ChunkClock {
            watched: watched.clone(),
            last: None,
        });
        Ok(Action::Continue)
    }

    async fn after(
        &self,
        request: &ModelRequest,
        response: &ModelResponse,
    ) -> Result<Action<ModelResponse>> {
        if let Some(watched) = request.extensions().get::<Watched>() {
            let mut seen = watched.lock();
            seen.model = response.metadata().model.clone();
            if watched.is_recorded() {
                seen.finish_reason = Some(response.finish_reason().to_string());
                seen.response_id = response.metadata().response_id.clone();
            }
        }
        Ok(Action::Continue)
    }

    fn name(&self) -> Cow<'static, str> {
        "OpenTelemetry".into()
    }

    /// Calls around which other callbacks are skipped are recorded too.
    fn is_guard(&self) -> bool {
        true
    }
}

/// Returns the settings of a request as attributes.
fn settings(settings: &Settings) -> Vec<KeyValue> {
    let Settings {
        temperature,
        top_p,
        max_tokens,
        stop,
        seed,
        ..
    } = settings;
    let mut attributes = Vec::new();
    let mut set = |key, value: Option<Value>| {
        attributes.extend(value.map(|value| KeyValue::new(key, value)));
    };
    set(attribute::REQUEST_TEMPERATURE, temperature.map(Value::F64));
    set(attribute::REQUEST_TOP_P, top_p.map(Value::F64));
    set(
        attribute::REQUEST_MAX_TOKENS,
        max_tokens.map(|max| Value::I64(max.into())),
    );
    set(
        attribute::REQUEST_SEED,
        seed.map(|seed| Value::I64(whole(seed))),
    );
    let stop: Vec<_> = stop.iter().cloned().map(StringValue::from).collect();
    set(
        attribute::REQUEST_STOP_SEQUENCES,
        (!stop.is_empty()).then_some(Value::Array(Array::String(stop))),
    );
    let level = settings
        .reasoning_effort
        .as_ref()
        .map(content::reasoning_level);
    set(attribute::REQUEST_REASONING_LEVEL, level.map(Value::from));
    let output = settings
        .response_format
        .as_ref()
        .map(|format| match format {
            ResponseFormat::Text => "text",
            _ => "json",
        });
    set(attribute::OUTPUT_TYPE, output.map(Value::from));
    attributes
}

/// Measures the times between the chunks of an attempt.
struct ChunkClock {
    watched: Watched,
    last: Option<Chunk>,
}

/// The previous chunk.
struct Chunk {
    at: Instant,
    /// The time that the run had waited for its consumer by then.
    waited: Duration,
    attributes: Vec<KeyValue>,
}

impl Mapper for ChunkClock {
    fn map(&mut self, delta: Delta, out: &mut Vec<Delta>) -> Result<(), Error> {
        out.push(delta);
        let Watch {
            telemetry,
            began,
            consumer,
            ..
        } = &*self.watched.0;
        // A span has the time of the first chunk alone.
        if self.last.is_some() && !telemetry.is_metered() {
            return Ok(());
        }
        let now = Instant::now();
        let waited_now = consumer.elapsed();
        match &mut self.last {
            Some(Chunk {
                at,
                waited,
                attributes,
            }) => {
                // A slow consumer holds the stream back, and that is not the model's time.
                let time = now.duration_since(*at).saturating_sub(waited_now - *waited);
                record(&telemetry.metrics.time_per_output_chunk, time, attributes);
                *at = now;
                *waited = waited_now;
            }
            None => {
                // Of the first attempt that streams: a retry does not make the chunk come later.
                self.watched
                    .lock()
                    .first_chunk
                    .get_or_insert_with(|| now.duration_since(*began));
                // Built once for each attempt, since chunks come by the thousand.
                let attributes = of_metrics(&self.watched.reached());
                self.last = Some(Chunk {
                    at: now,
                    waited: waited_now,
                    attributes,
                });
            }
        }
        Ok(())
    }
}
