//! The label of what a model has read, with its origin.

use super::label::Label;

/// The label of what is read, and the tools that made it untrusted.
#[derive(Clone, Default)]
pub(super) struct Sum {
    pub(super) label: Label,
    pub(super) sources: Vec<String>,
}

impl Sum {
    pub(super) fn of(label: Label) -> Self {
        Self {
            label,
            sources: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, more: &Self) {
        // As most are: nothing changes.
        if more.label == Label::trusted() {
            return;
        }
        self.label = self.label.join(&more.label);
        for source in &more.sources {
            if self.sources.len() < MAX_SOURCES && !self.sources.contains(source) {
                self.sources.push(source.clone());
            }
        }
    }
}

/// The maximum number of tools that are named as the origin of what the model has read.
const MAX_SOURCES: usize = 16;
