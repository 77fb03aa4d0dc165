//! What this thread writes to `tracing`, at every level.

use std::fmt::{self, Write};
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Another subscriber. With one alone, `tracing` asks that of the thread which comes first to an
/// event whether anybody wants it, and a thread of another test has none.
static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(tracing_subscriber::registry()));

/// One event, or the fields of a span.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) target: String,
    pub(crate) level: Level,
    pub(crate) text: String,
}

#[derive(Clone, Default)]
pub(crate) struct TracingLog(Arc<Mutex<Vec<Line>>>);

impl TracingLog {
    /// Collects until the guard is dropped.
    pub(crate) fn begin() -> (Self, DefaultGuard) {
        LazyLock::force(&OTHER);
        let log = Self::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    fn push(&self, metadata: &tracing::Metadata<'_>, text: Text) {
        self.0.lock().unwrap().push(Line {
            target: metadata.target().to_owned(),
            level: *metadata.level(),
            text: text.0,
        });
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for TracingLog {
    fn on_new_span(&self, span: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        let mut text = Text::default();
        span.record(&mut text);
        self.push(span.metadata(), text);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let mut text = Text::default();
        values.record(&mut text);
        if let Some(metadata) = context.metadata(id) {
            self.push(metadata, text);
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.push(event.metadata(), text);
    }
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        write!(self.0, "{field}={value} ").unwrap();
    }
}
