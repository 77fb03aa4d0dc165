use serde_json::Value;
use tower_agent::stream::EventKind;

use crate::progress::PROGRESS;

/// One progress notification for the client of a call.
#[derive(Default)]
pub(super) struct Progress {
    /// `None` for the next number.
    pub(super) progress: Option<f64>,
    pub(super) total: Option<f64>,
    pub(super) message: Option<String>,
}

impl Progress {
    /// Returns the progress of an agent: the text that it writes.
    pub(super) fn of_agent(event: EventKind) -> Option<Self> {
        match event {
            EventKind::TextDelta { text, .. } => Some(Self {
                message: Some(text),
                ..Self::default()
            }),
            _ => None,
        }
    }

    /// Returns the progress that a tool reports as [`PROGRESS`].
    pub(super) fn of_tool(event: &EventKind) -> Option<Self> {
        let EventKind::Custom { name, value } = event else {
            return None;
        };
        if **name != *PROGRESS {
            return None;
        }
        let message = value.get("message").and_then(Value::as_str);
        Some(Self {
            progress: value.get("progress").and_then(Value::as_f64),
            total: value.get("total").and_then(Value::as_f64),
            message: message.map(str::to_owned),
        })
    }
}
