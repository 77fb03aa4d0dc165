use std::collections::HashMap;
use std::sync::Arc;

use super::batch::EventBatch;
use super::{Delta, EventKind};

/// What of one message has begun and not ended.
#[derive(Debug)]
pub(super) struct Blocks {
    pub(super) message: Arc<str>,
    has_text: bool,
    reasoning: Option<Arc<str>>,
    reasonings: u32,
    calls: Vec<Arc<str>>,
    /// The last of each index.
    by_index: HashMap<usize, Arc<str>>,
}

impl Blocks {
    pub(super) fn new(message: Arc<str>) -> Self {
        let (has_text, reasoning, reasonings, calls, by_index) = Default::default();
        Self { message, has_text, reasoning, reasonings, calls, by_index }
    }

    /// The events that a delta makes.
    pub(super) fn write(&mut self, delta: Delta, out: &mut EventBatch<'_>) {
        if delta.is_empty() {
            return;
        }
        if !matches!(delta, Delta::Reasoning(_)) {
            self.close_reasoning(out);
        }
        match delta {
            Delta::Text(text) => {
                let message = self.message.clone();
                if !self.has_text {
                    self.has_text = true;
                    out.push(EventKind::TextStart { message: message.clone() });
                }
                out.push(EventKind::TextDelta { message, text });
            }
            Delta::Reasoning(text) => {
                let id = self.reasoning(out);
                out.push(EventKind::ReasoningDelta { id, text });
            }
            Delta::ToolCall { index, id, name } => {
                self.calls.push(id.clone());
                self.by_index.insert(index, id.clone());
                out.push(EventKind::ToolCallStart { id, name, message: self.message.clone() });
            }
            Delta::Arguments { index, json } => {
                if let Some(id) = self.by_index.get(&index) {
                    out.push(EventKind::ToolCallDelta { id: id.clone(), json });
                }
            }
        }
    }

    fn reasoning(&mut self, out: &mut EventBatch<'_>) -> Arc<str> {
        if let Some(id) = &self.reasoning {
            return id.clone();
        }
        let id: Arc<str> = format!("{}-r{}", self.message, self.reasonings).into();
        self.reasonings += 1;
        self.reasoning = Some(id.clone());
        out.push(EventKind::ReasoningStart { id: id.clone(), message: self.message.clone() });
        id
    }

    fn close_reasoning(&mut self, out: &mut EventBatch<'_>) {
        if let Some(id) = self.reasoning.take() {
            out.push(EventKind::ReasoningEnd { id });
        }
    }

    /// Ends what is open.
    pub(super) fn close(&mut self, out: &mut EventBatch<'_>) {
        self.close_reasoning(out);
        if std::mem::take(&mut self.has_text) {
            out.push(EventKind::TextEnd { message: self.message.clone() });
        }
        self.by_index.clear();
        self.calls.drain(..).for_each(|id| out.push(EventKind::ToolCallEnd { id }));
    }
}
