use serde_json::Value;
use tower_agent::stream::EventKind;

use crate::progress::PROGRESS;

/// What a client is told while a call runs.
#[derive(Default)]
pub(super) struct Progress {
    /// `None` for the next number.
    pub(super) progress: Option<f64>,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

impl Progress {
    /// The text that an agent writes.
    pub(super) fn of_agent(event: EventKind) -> Option<Self> {
        match event {
            EventKind::TextDelta { text, .. } => Some(Self {
                message: Some(text),
                ..Self::default()
            }),
            _ => None,
        }
    }

    /// What a tool reports.
    pub(super) fn of_tool(event: &EventKind) -> Option<Self> {
        let EventKind::Custom { name, value } = event else {
            return None;
        };
        let message = value
            .get("message")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let number = |field: &str| value.get(field).and_then(Value::as_f64);
        let progress = Self {
            progress: number("progress"),
            total: number("total"),
            message,
        };
        (**name == *PROGRESS).then_some(progress)
    }
}
