//! The labels of what is in the state of a session, by the call that has written it.
//!
//! They are kept with a digest of the value: what somebody else has written over it has no label
//! yet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::State;
use tower_agent::context::RunContext;

use super::label::Label;
use super::run::FlowRun;
use super::settings::FlowSettings;

/// The key of the labels, of the whole run.
const KEY: &str = "tower_agent.guard.flow state";

/// The key of the digests of the entries that the program has given the run, until that ends. With
/// it, a checkpoint says that the state may have others that have no label yet.
const BEGUN: &str = "tower_agent.guard.flow state begun";

/// The knowledge about an entry of the state.
#[derive(Default, Serialize, Deserialize)]
struct Written {
    label: Label,
    /// The digest of the value that has this label; empty if there is no such value.
    of: String,
}

/// The labels of the entries of a state.
pub(super) struct StateLabels<'a> {
    state: &'a State,
    private: &'a State,
    run: &'a FlowRun,
    /// The label of what callbacks and layers write.
    callbacks: &'a Label,
}

impl<'a> StateLabels<'a> {
    /// Returns the labels of this state, which is not traced.
    pub(super) fn of(
        state: &'a State,
        context: &'a RunContext,
        run: &'a FlowRun,
        settings: &'a FlowSettings,
    ) -> Self {
        Self {
            state,
            private: context.private_state(),
            run,
            callbacks: &settings.callbacks,
        }
    }

    /// Returns the label of an entry. `None` if there is no such entry, or if it is what the
    /// program has given the run.
    pub(super) fn get(&self, key: &str) -> Option<Label> {
        self.of_value(key, &self.state.get(key)?)
    }

    /// Returns the label of a value that an entry has, or had when it was read.
    pub(super) fn of_value(&self, key: &str, value: &Value) -> Option<Label> {
        match self.known(key) {
            Some(known) if known.of == State::digest(value) => Some(known.label),
            // Somebody has added to it, perhaps.
            Some(known) => Some(known.label.join(&self.of_others())),
            None => {
                let is_given = self.state.original(key).as_ref() == Some(value);
                (!is_given).then(|| self.of_others())
            }
        }
    }

    /// Returns the label of what callbacks and calls that are being made may have written.
    fn of_others(&self) -> Label {
        let running = self.run.running().unwrap_or_default();
        running.join(self.callbacks)
    }

    /// Records the label of an entry that a call has written.
    pub(super) fn set(&self, key: &str, label: &Label) {
        let mut label = label.clone();
        // Of calls at the same time, nobody knows which has written it last.
        if let Some(others) = self.run.running() {
            let known = self.known(key);
            label = label.join(&others);
            label = known.map_or(label.clone(), |known| known.label.join(&label));
        }
        self.record(key, self.state.get(key).as_ref(), label);
    }

    /// Records that something with this label was written into an entry, over which somebody else
    /// has written.
    pub(super) fn join(&self, key: &str, label: &Label) {
        let known = self.known(key).unwrap_or_default();
        let label = known.label.join(label);
        self.put(
            key,
            Some(Written {
                label,
                of: known.of,
            }),
        );
    }

    /// Records the label of an entry, unless its label is known.
    pub(super) fn set_unknown(&self, key: &str, label: &Label) {
        let value = self.state.get(key);
        let known = self.known(key);
        let label = match (&known, &value) {
            (Some(known), Some(value)) if known.of == State::digest(value) => return,
            (Some(known), _) => known.label.join(label),
            (None, _) => label.clone(),
        };
        self.record(key, value.as_ref(), label);
    }

    /// Records the label of the texts of a model that its agent keeps under a key, of which this is
    /// the next.
    pub(super) fn add_output(&self, key: &str, is_first: bool, text: &str, label: &Label) {
        if text.is_empty() {
            return;
        }
        let earlier = self.state.get(key).filter(|_| !is_first);
        let mut label = label.clone();
        let mut whole = String::new();
        if let (Some(Value::String(earlier)), Some(known)) = (&earlier, self.known(key))
            && known.of == State::digest(&json!(earlier))
        {
            label = label.join(&known.label);
            whole.push_str(earlier);
        }
        whole.push_str(text);
        self.record(key, Some(&Value::String(whole)), label);
    }

    /// Records what the program has given a run that begins. If the one before it has not ended,
    /// since its process has died, nobody has said who has written the rest.
    pub(super) fn begin_run(&self) {
        let earlier: Option<BTreeMap<String, String>> = self
            .private
            .read(BEGUN, |begun| BTreeMap::deserialize(begun?).ok());
        let mut given = BTreeMap::new();
        for (key, value) in self.state.snapshot() {
            let digest = State::digest(&value);
            let is_given = |earlier: &BTreeMap<_, _>| earlier.get(&key) == Some(&digest);
            if earlier.as_ref().is_none_or(is_given) {
                given.insert(key, digest);
            } else {
                self.set_unknown(&key, &Label::unknown());
            }
        }
        self.private.set(BEGUN, json!(given));
    }

    /// Records who has written what nobody has said anything about.
    pub(super) fn end_run(&self) {
        self.private.remove(BEGUN);
        for key in self.state.delta().set.keys() {
            self.set_unknown(key, self.callbacks);
        }
    }

    fn known(&self, key: &str) -> Option<Written> {
        let read = |all: Option<&Value>| Written::deserialize(all?.get(key)?).ok();
        self.private.read(KEY, read)
    }

    fn record(&self, key: &str, value: Option<&Value>, label: Label) {
        let written = value.map(|value| Written {
            label,
            of: State::digest(value),
        });
        if written.is_some() || self.known(key).is_some() {
            self.put(key, written);
        }
    }

    fn put(&self, key: &str, written: Option<Written>) {
        self.private.update(KEY, |all| {
            if !all.is_object() {
                *all = json!({});
            }
            match (all.as_object_mut(), written) {
                (Some(all), Some(written)) => drop(all.insert(key.to_owned(), json!(written))),
                (Some(all), None) => drop(all.remove(key)),
                (None, _) => {}
            }
        });
    }
}

/// Returns the label of everything that calls have written into the state.
pub(super) fn label_of_all(private: &State) -> Label {
    private.read(KEY, |all| {
        let entries = all.and_then(Value::as_object);
        let labels = entries.into_iter().flat_map(|entries| entries.values());
        labels.fold(Label::trusted(), |sum, entry| {
            let written = Written::deserialize(entry);
            sum.join(&written.map_or_else(|_| Label::unknown(), |written| written.label))
        })
    })
}
