use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry::trace::{SpanRef, TraceContextExt};
use opentelemetry::{Array, Context, KeyValue, StringValue, Value};
use tokio::time::Instant;
use tower_agent::call::CallKind;
use tower_agent::model::{ModelTarget, ResponseFormat};
use tower_agent::stream::{ConsumerWait, Delta, Mapper};
use tower_agent::{
    Action, Callback, Error, ModelRequest, ModelResponse, Request, Result, Settings, Usage,
};
use tracing::{Span, info_span};

use super::agent::Calls;
use crate::content;
use crate::metrics::record;
use crate::names::{self, NO_RESPONSE, attribute, event, exception, operation};
use crate::recorded::{Ending, Recorded};
use crate::telemetry::Telemetry;

pub(crate) struct ModelRecord {
    /// The model in the settings of the request, which the model itself may overrule.
    requested_model: Option<String>,
    watched: Watched,
}

impl Recorded for ModelRequest {
    type Record = ModelRecord;

    fn span(request: &Self, _: &Telemetry) -> Span {
        let model = request.settings().model.as_deref();
        info_span!(
            "chat",
            otel.name = model.map_or_else(|| operation::CHAT.to_owned(), name),
            otel.kind = "client",
            { attribute::OPERATION_NAME } = operation::CHAT,
        )
    }

    fn begin(request: &mut Self, telemetry: &Arc<Telemetry>, context: &mut Context) -> ModelRecord {
        Calls::count(CallKind::Model);
        let has_span = context.span().is_recording();
        let watched = Watched::new(telemetry.clone(), has_span, request.consumer_wait());
        let extensions = request.extensions_mut();
        // The first is for the model, which reports its provider and name in it; the second is for
        // `Innermost`. Retries and fallbacks between here and there send on both.
        extensions.insert(watched.0.target.clone());
        extensions.insert(watched.clone());
        ModelRecord {
            requested_model: request.settings().model.clone(),
            watched,
        }
    }

    fn describe(request: &Self, _: &Telemetry, span: &SpanRef<'_>) {
        if request.delta_sender().is_some() {
            span.set_attribute(KeyValue::new(attribute::REQUEST_STREAM, true));
        }
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
        let metrics = &telemetry.metrics;
        let mut attributes = call.watched.attributes(call.requested_model.take());
        let mut seen = call.watched.lock();
        if let Some(span) = span {
            if let Some(model) = value_of(&attributes, attribute::REQUEST_MODEL) {
                span.update_name(name(&model.as_str()));
            }
            // Not at the start: only the model that was called last is known to be the right one,
            // and an attribute that is set twice is exported twice.
            span.set_attributes(
                attributes
                    .iter()
                    .filter(|attribute| attribute.key.as_str() != attribute::OPERATION_NAME)
                    .cloned(),
            );
            span.set_attributes(std::mem::take(&mut seen.attributes));
            span.set_attributes(usage(seen.usage.unwrap_or_default()));
            // A response of a callback or a cache has no finish reason of a model.
            if seen.is_sent {
                let reason = seen.finish_reason.take();
                let reason = StringValue::from(reason.unwrap_or_else(|| NO_RESPONSE.to_owned()));
                let reasons = Value::Array(Array::String(vec![reason]));
                span.set_attribute(KeyValue::new(attribute::RESPONSE_FINISH_REASONS, reasons));
            }
            if let Some(time) = seen.first_chunk {
                let time = time.as_secs_f64();
                span.set_attribute(KeyValue::new(attribute::RESPONSE_TIME_TO_FIRST_CHUNK, time));
            }
            if let (Some(response), true) = (response, telemetry.has_content) {
                let messages = content::output(response);
                span.set_attribute(KeyValue::new(attribute::OUTPUT_MESSAGES, messages));
            }
        }
        if let Some(model) = seen.model.take() {
            if let Some(span) = span {
                span.set_attribute(KeyValue::new(attribute::RESPONSE_MODEL, model.clone()));
            }
            attributes.push(KeyValue::new(attribute::RESPONSE_MODEL, model));
        }
        if let Some(time) = seen.first_chunk {
            record(&metrics.time_to_first_chunk, time, &attributes);
        }
        // A call that no model has received has spent nothing, and is not a call of zero tokens.
        let usage = seen.is_sent.then(|| seen.usage.unwrap_or_default());
        if let Some(usage) = usage {
            metrics.count(usage, &attributes);
        }
        // Only now: the conventions have no `error.type` for the metrics above.
        if let Some(error_type) = ending.error_type {
            attributes.push(KeyValue::new(attribute::ERROR_TYPE, error_type));
        }
        if let Some(usage) = usage {
            metrics.record_tokens(usage, &attributes);
        }
        record(&metrics.inference_duration, ending.duration, &attributes);
    }

    fn emit_exception(error_type: &'static str, message: Option<&str>) {
        exception!(event::CLIENT_EXCEPTION, error_type, message);
    }
}

fn name(model: &str) -> String {
    format!("{} {model}", operation::CHAT)
}

fn value_of<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a Value> {
    attributes
        .iter()
        .find(|attribute| attribute.key.as_str() == key)
        .map(|attribute| &attribute.value)
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
    has_span: bool,
    target: ModelTarget,
    began: Instant,
    consumer: ConsumerWait,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    is_sent: bool,
    /// The attributes of the request that was sent last.
    attributes: Vec<KeyValue>,
    /// The sum of all responses' usage.
    usage: Option<Usage>,
    /// The finish reason of the response to the request that was sent last.
    finish_reason: Option<String>,
    model: Option<String>,
    first_chunk: Option<Duration>,
}

impl Watched {
    fn new(telemetry: Arc<Telemetry>, has_span: bool, consumer: ConsumerWait) -> Self {
        Self(Arc::new(Watch {
            telemetry,
            has_span,
            target: ModelTarget::default(),
            began: Instant::now(),
            consumer,
            seen: Mutex::default(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the attributes of every metric. A model that does not report its name gets
    /// `requested_model`.
    fn attributes(&self, requested_model: Option<String>) -> Vec<KeyValue> {
        let Watch {
            telemetry, target, ..
        } = &*self.0;
        let provider = match target.provider() {
            Some(provider) => Value::from(names::provider(provider)),
            None => Value::from(StringValue::from(telemetry.provider.clone())),
        };
        let model = target
            .model()
            .map(StringValue::from)
            .or(requested_model.map(StringValue::from));
        let mut attributes = vec![
            KeyValue::new(attribute::OPERATION_NAME, operation::CHAT),
            KeyValue::new(attribute::PROVIDER_NAME, provider),
        ];
        if let Some(model) = model {
            attributes.push(KeyValue::new(attribute::REQUEST_MODEL, model));
        }
        attributes
    }
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
        if watched.0.has_span {
            attributes.extend(settings(request.settings()));
            if watched.0.telemetry.has_content {
                attributes.extend(content::input(request));
            }
        }
        let mut seen = watched.lock();
        seen.is_sent = true;
        seen.attributes = attributes;
        // An attempt that fails has no finish reason, not even that of the attempt before.
        seen.finish_reason = None;
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
            // A layer may send several requests in one call, and each has spent tokens.
            seen.usage = Some(seen.usage.unwrap_or_default() + response.usage());
            seen.model = response.metadata().model().map(str::to_owned);
            if watched.0.has_span {
                seen.finish_reason = Some(response.finish_reason().to_string());
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
                let attributes = self.watched.attributes(None);
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
