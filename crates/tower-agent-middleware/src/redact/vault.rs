//! The original texts of numbered placeholders.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::lock::lock;
use tower_agent::context::{Names, RunContext, State};
use tower_agent::error::{Error, ErrorKind, Result};

const KEY: &str = "tower_agent.guard.redact";

/// The placeholders of one conversation and their original texts. Clones share one vault. It is
/// stored in the conversation's private state.
#[derive(Clone, Default)]
pub(super) struct Vault {
    inner: Arc<Mutex<VaultInner>>,
    /// The state in which this call stores what it adds.
    state: Option<State>,
}

#[derive(Default)]
struct VaultInner {
    is_open: bool,
    /// The kinds of placeholders that the redactions of the run write.
    kinds: Vec<String>,
    /// Indexed by kind and text.
    placeholders: HashMap<(String, String), String>,
    originals: HashMap<String, String>,
    /// The last number used for each kind.
    numbers: HashMap<String, u32>,
}

/// The stored form.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredVault {
    originals: HashMap<String, String>,
    numbers: HashMap<String, u32>,
}

impl Vault {
    /// Returns the vault of a run, for placeholders of these kinds.
    pub(super) fn of(context: &RunContext, kinds: &[String]) -> Result<Self> {
        let mut vault = context
            .values()
            .update(KEY, |vault: &mut Self| vault.clone())?;
        // Through the shared vault, so that agents that run at the same time assign no number
        // twice.
        vault.inner().open(context.private_state())?;
        vault.declare(context, kinds);
        vault.state = Some(context.private_state().clone());
        Ok(vault)
    }

    /// Declares the placeholders of these kinds as names of the conversation.
    fn declare(&self, context: &RunContext, kinds: &[String]) {
        let mut inner = self.inner();
        if inner.kinds.is_empty() {
            let shared = Self {
                inner: self.inner.clone(),
                state: None,
            };
            // Under the lock: a call that begins at the same time has them declared as well.
            context
                .names()
                .declare(KEY, move |_, text| shared.inner().names(text));
        }
        for kind in kinds {
            if !inner.kinds.contains(kind) {
                inner.kinds.push(kind.clone());
            }
        }
    }

    fn inner(&self) -> MutexGuard<'_, VaultInner> {
        lock(&self.inner)
    }

    /// Returns the placeholder for a text, always the same one.
    pub(super) fn placeholder(&self, kind: &str, text: &str) -> String {
        let mut inner = self.inner();
        let of = (kind.to_owned(), text.to_owned());
        if let Some(placeholder) = inner.placeholders.get(&of) {
            return placeholder.clone();
        }
        let number = inner.numbers.entry(kind.to_owned()).or_default();
        *number = number.saturating_add(1);
        let number = *number;
        let placeholder = format!("[{kind}-{number}]");
        inner.placeholders.insert(of, placeholder.clone());
        inner
            .originals
            .entry(placeholder.clone())
            // Kept if it is there: a placeholder that was assigned keeps its meaning.
            .or_insert_with(|| text.to_owned());
        self.store("originals", &placeholder, text.into());
        self.store("numbers", kind, number.into());
        placeholder
    }

    fn store(&self, what: &str, key: &str, value: Value) {
        let Some(state) = &self.state else { return };
        state.update(KEY, |stored| {
            if let Some(vault) = object(stored)
                && let Some(entries) = object(vault.entry(what).or_insert(Value::Null))
            {
                entries.insert(key.to_owned(), value);
            }
        });
    }

    /// Returns whether this placeholder has an original text.
    pub(super) fn has(&self, placeholder: &str) -> bool {
        self.inner().originals.contains_key(placeholder)
    }

    /// Reserves the placeholders that occur in a text, so that they are not assigned again.
    pub(super) fn reserve(&self, kinds: &[String], text: &str) {
        for (_, inside) in brackets(text) {
            if let Some((kind, number)) = inside.rsplit_once('-')
                && let Ok(number) = number.parse::<u32>()
                // A number too large to be reached by counting was made up.
                && number < u32::MAX / 2
                && kinds.iter().any(|known| known == kind)
            {
                let mut inner = self.inner();
                let last = inner.numbers.entry(kind.to_owned()).or_default();
                if number > *last {
                    *last = number;
                    self.store("numbers", kind, number.into());
                }
            }
        }
    }

    /// Returns the text with its placeholders replaced by the original texts, or `None` if it has
    /// none. `Err` contains a placeholder of one of these kinds that has no original.
    pub(super) fn restore(&self, kinds: &[String], text: &str) -> Result<Option<String>, String> {
        let inner = self.inner();
        let is_unknown = |(at, inside): &(usize, &str)| {
            let placeholder = &text[*at..at + inside.len() + 2];
            is_numbered(kinds, inside) && !inner.originals.contains_key(placeholder)
        };
        // A made-up placeholder must not reach a tool as if it were a value.
        match brackets(text).find(is_unknown) {
            Some((_, inside)) => Err(format!("[{inside}]")),
            None => Ok(inner.fill(text, |_| true)),
        }
    }

    /// Returns the text with the placeholders of these kinds replaced by the original texts, or
    /// `None` if it has none.
    pub(super) fn reveal(&self, kinds: &[String], text: &str) -> Option<String> {
        // Another redaction of the run may have hidden what is of other kinds.
        self.inner().fill(text, |inside| is_numbered(kinds, inside))
    }
}

impl VaultInner {
    /// Returns the placeholders in a text, with the original text of each that has one.
    fn names(&self, text: &str) -> Names {
        let mut names = Names::new();
        for (at, inside) in brackets(text) {
            let placeholder = &text[at..at + inside.len() + 2];
            let original = self.originals.get(placeholder);
            if original.is_some() || is_numbered(&self.kinds, inside) {
                let original = original.cloned().unwrap_or_default();
                names.insert(placeholder.to_owned(), original);
            }
        }
        names
    }

    /// Returns the text with the original texts in place of the placeholders that are chosen by
    /// what is in their brackets, or `None` if it has none.
    fn fill(&self, text: &str, is_chosen: impl Fn(&str) -> bool) -> Option<String> {
        let mut filled = String::new();
        let mut done = 0;
        for (at, inside) in brackets(text).filter(|(_, inside)| is_chosen(inside)) {
            let end = at + inside.len() + 2;
            if let Some(original) = self.originals.get(&text[at..end]) {
                filled.push_str(&text[done..at]);
                filled.push_str(original);
                done = end;
            }
        }
        (done > 0).then(|| filled + &text[done..])
    }

    /// Reads the stored vault: once, and again if a call that was not made has added to it.
    fn open(&mut self, state: &State) -> Result<()> {
        let count = state.read(KEY, |stored| {
            stored
                .and_then(|stored| stored.get("originals")?.as_object())
                .map_or(0, serde_json::Map::len)
        });
        if self.is_open && count == self.originals.len() {
            return Ok(());
        }
        let stored: StoredVault = match state.get(KEY) {
            Some(stored) => serde_json::from_value(stored).map_err(|error| {
                let message = "cannot read the stored placeholders of the conversation";
                Error::new(ErrorKind::InvalidRequest, message).with_source(error)
            })?,
            None => StoredVault::default(),
        };
        for (placeholder, original) in &stored.originals {
            let inside = placeholder.trim_matches(['[', ']']);
            // Only one direction is stored; the other follows from it.
            if let Some((kind, _)) = inside.rsplit_once('-') {
                self.placeholders
                    .insert((kind.into(), original.clone()), placeholder.clone());
            }
        }
        let stored_count = stored.originals.len();
        self.originals.extend(stored.originals);
        for (kind, number) in stored.numbers {
            let last = self.numbers.entry(kind).or_default();
            // Never less: a number that was reserved here may not be stored yet.
            *last = number.max(*last);
        }
        if self.originals.len() > stored_count {
            // Of two calls that were not made, the second has stored the vault as it knew it.
            state.set(
                KEY,
                json!({ "originals": self.originals, "numbers": self.numbers }),
            );
        }
        self.is_open = true;
        Ok(())
    }
}

fn object(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    if !value.is_object() {
        // An entry that is new starts as null.
        *value = json!({});
    }
    value.as_object_mut()
}

/// Returns whether this is the content of a placeholder of one of these kinds, in any spelling.
fn is_numbered(kinds: &[String], inside: &str) -> bool {
    inside.rsplit_once('-').is_some_and(|(kind, number)| {
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number && kinds.iter().any(|known| known.eq_ignore_ascii_case(kind))
    })
}

/// Returns where brackets open, and their content.
fn brackets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices('[').filter_map(|(at, _)| {
        let inside = &text[at + 1..];
        let end = inside
            .find(['[', ']'])
            .filter(|end| inside[*end..].starts_with(']'))?;
        Some((at, &inside[..end]))
    })
}
