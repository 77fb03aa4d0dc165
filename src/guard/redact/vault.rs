//! What stands behind numbered placeholders.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::RunContext;
use crate::error::Result;

const KEY: &str = "tower_agent.guard.redact";

/// The placeholders of one run and what stands behind them. A handle: clones are the same vault.
#[derive(Clone, Default)]
pub(super) struct Vault(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// By kind and text.
    placeholders: HashMap<(String, String), String>,
    originals: HashMap<String, String>,
    /// The last number of each kind.
    numbers: HashMap<String, u32>,
}

impl Vault {
    /// That of a run.
    pub(super) fn of(context: &RunContext) -> Result<Self> {
        Ok(context.values().update(KEY, |vault: &mut Self| vault.clone())?)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here is left half done by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The placeholder for a text, the same each time.
    pub(super) fn placeholder(&self, kind: &str, text: &str) -> String {
        let mut inner = self.inner();
        let Inner { placeholders, originals, numbers } = &mut *inner;
        let of = (kind.to_owned(), text.to_owned());
        let placeholder = placeholders.entry(of).or_insert_with(|| {
            let number = numbers.entry(kind.to_owned()).or_default();
            *number = number.saturating_add(1);
            format!("[{kind}-{number}]")
        });
        originals.entry(placeholder.clone()).or_insert_with(|| text.to_owned());
        placeholder.clone()
    }

    /// Whether this is a placeholder for something.
    pub(super) fn has(&self, placeholder: &str) -> bool {
        self.inner().originals.contains_key(placeholder)
    }

    /// Gives none of the placeholders that stand in a text to anything new.
    pub(super) fn reserve(&self, kinds: &[String], text: &str) {
        for (_, inside) in brackets(text) {
            if let Some((kind, number)) = inside.rsplit_once('-')
                && let Ok(number) = number.parse::<u32>()
                // A number that nobody reaches by counting was made up.
                && number < u32::MAX / 2
                && kinds.iter().any(|known| known == kind)
            {
                let mut inner = self.inner();
                let last = inner.numbers.entry(kind.to_owned()).or_default();
                *last = number.max(*last);
            }
        }
    }

    /// The text with what stands behind its placeholders; `None` if it has none.
    pub(super) fn restore(&self, text: &str) -> Option<String> {
        let inner = self.inner();
        let mut restored = String::new();
        let mut done = 0;
        for (at, inside) in brackets(text) {
            let end = at + inside.len() + 2;
            if let Some(original) = inner.originals.get(&text[at..end]) {
                restored.push_str(&text[done..at]);
                restored.push_str(original);
                done = end;
            }
        }
        (done > 0).then(|| restored + &text[done..])
    }
}

/// Where brackets open, and what stands in them.
fn brackets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices('[').filter_map(|(at, _)| {
        let inside = &text[at + 1..];
        let end = inside.find(['[', ']']).filter(|end| inside[*end..].starts_with(']'))?;
        Some((at, &inside[..end]))
    })
}
