//! Events that code tells `tracing`.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Another subscriber. With one alone, `tracing` asks that of the thread which comes first to an
/// event whether anybody wants it, and a thread of another test has none.
static OTHER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// The fields of what these crates tell `tracing`, one text for each event: of warnings and errors,
/// or [down to](Self::down_to) another level. Clones share it.
#[derive(Clone, Debug)]
pub struct Traces {
    texts: Arc<Mutex<Vec<String>>>,
    level: Level,
}

impl Default for Traces {
    fn default() -> Self {
        Self::down_to(Level::WARN)
    }
}

impl Traces {
    pub fn down_to(level: Level) -> Self {
        LazyLock::force(&OTHER);
        Self {
            texts: Arc::default(),
            level,
        }
    }

    /// Takes all texts so far.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.texts.lock().unwrap())
    }
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Traces {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_agent") && *metadata.level() <= self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.texts
            .lock()
            .unwrap()
            .push(fields.0.trim_end().to_owned());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
