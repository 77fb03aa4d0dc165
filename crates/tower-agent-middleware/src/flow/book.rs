//! The labels and variables of a conversation, in its private state.
//!
//! Each entry has a key of its own, so that a journal that stores what a call has changed stores little. The
//! entries are read from the state whenever they are needed, and are in no second place: a replay may
//! change them.
//! The entries of an agent that works in a tool call are removed with the call.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::context::{RunContext, State};
use tower_agent::message::Part;

use super::label::Label;
use super::place;
use super::pointer::PointerPattern;

/// The key of everything that the guard keeps.
pub(super) const KEY: &str = "tower_agent.guard.flow";

/// What is known about a message of the model and the calls in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    /// The label of all that the model had read.
    pub(super) label: Label,
    /// The tools whose untrusted results it had read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) sources: BTreeSet<String>,
    /// The places of the calls whose results the model reads, with the turn's own label: a bit for each.
    #[serde(default, skip_serializing_if = "is_zero")]
    plain: u64,
    /// What other calls have brought, by their places.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    others: BTreeMap<usize, Brought>,
}

fn is_zero(bits: &u64) -> bool {
    *bits == 0
}

impl Turn {
    /// Creates a message without calls.
    pub(super) fn new(label: Label, sources: BTreeSet<String>) -> Self {
        Self {
            label,
            sources,
            ..Self::default()
        }
    }

    /// Reads an entry. `None` if it cannot be read: what has no label is not trusted.
    fn read(entry: &Value) -> Option<Self> {
        match entry.as_u64() {
            Some(plain) => Some(Self {
                plain,
                ..Self::default()
            }),
            None => Self::deserialize(entry).ok(),
        }
    }

    /// Returns the entry of this turn. If everything is trusted, as in most turns of most conversations,
    /// it is a number, which takes a fraction of the time and room of an object.
    fn entry(&self) -> Value {
        if self.label == Label::trusted() && self.sources.is_empty() && self.others.is_empty() {
            self.plain.into()
        } else {
            json!(self)
        }
    }

    /// Returns what the call at this place has brought.
    pub(super) fn result(&self, call: usize) -> Option<Cow<'_, Brought>> {
        match self.others.get(&call) {
            Some(brought) => Some(Cow::Borrowed(brought)),
            None if self.plain & bit(call) != 0 => {
                Some(Cow::Owned(Brought::shown(self.label.clone())))
            }
            None => None,
        }
    }

    /// Records what the call at this place has brought.
    pub(super) fn set_result(&mut self, call: usize, brought: Brought) {
        // Nobody asks where trusted content is from.
        let names_no_tool = brought.from.is_empty() || brought.label.is_trusted();
        let is_plain = brought.variable.is_none() && names_no_tool && brought.label == self.label;
        if is_plain && bit(call) != 0 {
            self.plain |= bit(call);
            self.others.remove(&call);
        } else {
            self.plain &= !bit(call);
            self.others.insert(call, brought);
        }
    }
}

/// Returns the bit of a call, or 0 for one beyond the last bit.
fn bit(call: usize) -> u64 {
    let call = u32::try_from(call).unwrap_or(u32::MAX);
    1_u64.checked_shl(call).unwrap_or(0)
}

/// What a call has brought, as the model reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Brought {
    pub(super) label: Label,
    /// The tools that it is from, if not from the called one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) from: Vec<String>,
    /// The variable that has the result, if the model does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) variable: Option<String>,
}

impl Brought {
    /// Returns what the model reads with this label.
    pub(super) fn shown(label: Label) -> Self {
        Self {
            label,
            from: Vec::new(),
            variable: None,
        }
    }
}

/// A result that the model has not read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Variable {
    pub(super) value: Value,
    /// The parts for the model, if they are not the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parts: Option<Vec<Part>>,
    pub(super) label: Label,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) labels: Vec<(PointerPattern, Label)>,
    /// The tool that returned it.
    pub(super) tool: String,
    /// The tools whose results it is made of.
    pub(super) from: Vec<String>,
    /// The message with the call that returned it.
    pub(super) message: String,
}

impl Variable {
    /// Returns the label of the value at this path, with all that is in it.
    pub(super) fn label_at(&self, path: &[String]) -> Label {
        let covering = self.labels.iter().filter(|(at, _)| at.covers(path));
        let most_exact = covering.max_by_key(|(at, _)| at.exactness());
        let label = most_exact.map_or(&self.label, |(_, label)| label);
        let inside = self.labels.iter().filter(|(at, _)| at.is_inside(path));
        inside.fold(label.clone(), |all, (_, label)| all.join(label))
    }
}

/// The entries of one conversation.
pub(super) struct Book<'a> {
    state: &'a State,
    prefix: Cow<'static, str>,
}

impl<'a> Book<'a> {
    pub(super) fn of(context: &'a RunContext) -> Self {
        Self {
            state: context.private_state(),
            prefix: context
                .outer_call_key(KEY)
                .map_or(Cow::Borrowed(KEY), Cow::Owned),
        }
    }

    fn key(&self, kind: &str, name: &str) -> String {
        // A key is made for every message: `format!` takes several times as long.
        let mut key = String::with_capacity(self.prefix.len() + kind.len() + name.len() + 2);
        for part in [&*self.prefix, " ", kind, " ", name] {
            key.push_str(part);
        }
        key
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        // An entry that cannot be read counts as none: what has no label is not trusted.
        self.state.read(key, |value| T::deserialize(value?).ok())
    }

    pub(super) fn turn(&self, message: &str) -> Option<Turn> {
        let key = self.key("message", message);
        self.state.read(&key, |entry| Turn::read(entry?))
    }

    pub(super) fn set_turn(&self, message: &str, turn: &Turn) {
        self.state.set(self.key("message", message), turn.entry());
    }

    /// Records what a call has brought.
    pub(super) fn set_result(&self, message: &str, call: usize, brought: Brought) {
        let key = self.key("message", message);
        self.state.update(key, |entry| {
            // Without a turn, the model was called without the guard.
            let mut turn =
                Turn::read(entry).unwrap_or_else(|| Turn::new(Label::unknown(), BTreeSet::new()));
            turn.set_result(call, brought);
            *entry = turn.entry();
        });
    }

    pub(super) fn variable(&self, name: &str) -> Option<Variable> {
        self.read(&self.key("variable", name))
    }

    /// Keeps a variable, unless all of them then take more than this many bytes. Returns whether it did.
    pub(super) fn keep(&self, name: &str, variable: &Variable, max_bytes: usize) -> bool {
        let written = json!(variable);
        let size = written.to_string().len();
        let has_room = self.state.update(self.key("size", ""), |sum| {
            let sum_after = sum.as_u64().unwrap_or(0).saturating_add(size as u64);
            let has_room = sum_after <= max_bytes as u64;
            if has_room {
                *sum = sum_after.into();
            }
            has_room
        });
        if has_room {
            self.state.set(self.key("variable", name), written);
        }
        has_room
    }

    /// Returns whether a person has declared this value to be trusted.
    pub(super) fn is_endorsed(&self, value: &Value) -> bool {
        let key = self.key("endorsed", "");
        self.state.read(&key, |endorsed| {
            let values = endorsed.and_then(Value::as_array);
            values.is_some_and(|values| values.contains(value))
        })
    }

    /// Records that a person has declared this value to be trusted.
    pub(super) fn endorse(&self, value: &Value) {
        self.state.update(self.key("endorsed", ""), |endorsed| {
            match endorsed.as_array_mut() {
                Some(values) if values.contains(value) => {}
                Some(values) => values.push(value.clone()),
                None => *endorsed = json!([value]),
            }
        });
    }

    /// Counts bits that the model learns of what it has not read. Returns `false`, and counts nothing, if
    /// these would be more than `max`.
    pub(super) fn leak(&self, bits: u32, max: u32) -> bool {
        // Of the whole run: an agent that works in a call has no allowance of its own.
        self.state.update(format!("{KEY} leaked"), |sum| {
            let sum_after = sum.as_u64().unwrap_or(0).saturating_add(bits.into());
            let is_allowed = sum_after <= max.into();
            if is_allowed {
                *sum = sum_after.into();
            }
            is_allowed
        })
    }

    /// Returns the bits that were counted.
    pub(super) fn leaked(context: &RunContext) -> u64 {
        let key = format!("{KEY} leaked");
        context
            .private_state()
            .read(&key, |sum| sum.and_then(Value::as_u64).unwrap_or(0))
    }
}

/// The name of the label of what agents have read that work in a call, in the data of the call.
const INSIDE: &str = "tower_agent.guard.flow inside";

/// The key that says that an agent has read something in a tool call.
const ANY_INSIDE: &str = "tower_agent.guard.flow any inside";

/// Records the label of what an agent reads that works in a tool call.
pub(super) fn note_read(agent: &RunContext, label: &Label) {
    let Some(key) = agent.outer_call_key(INSIDE) else {
        return;
    };
    let state = agent.private_state();
    let earlier: Option<Label> = state.read(&key, |value| Label::deserialize(value?).ok());
    let joined = earlier
        .as_ref()
        .map_or(label.clone(), |earlier| earlier.join(label));
    if earlier.as_ref() != Some(&joined) {
        // With every label and not once: the changes of a call may be all that is replayed.
        state.set(ANY_INSIDE, true);
        state.set(key, json!(joined));
    }
}

/// Returns the label of what agents have read that work in this tool call. `None` if none has read
/// anything with the guard around its model.
pub(super) fn noted_inside(call: &RunContext) -> Option<Label> {
    let state = call.private_state();
    // In most conversations no agent works in a call, and the path of the call is not needed.
    if !state.read(ANY_INSIDE, |any| any.is_some()) {
        return None;
    }
    let key = call.call_key(INSIDE);
    state.read(&key, |value| Label::deserialize(value?).ok())
}

/// Returns the name of the variable for the result of a tool call: the same whenever this call is made.
pub(super) fn variable_name(context: &RunContext) -> String {
    let mut name = String::from("@");
    for character in own_steps(&context.step_path(), true).join("/").chars() {
        match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | '/' => name.push(character),
            other => name.push_str(&format!("%{:X}", u32::from(other))),
        }
    }
    name
}

/// Returns the steps of a path below the first agent that works in the innermost tool call around the
/// path's end, or below the outermost agent. The path ends in a tool call, or in an agent.
pub(super) fn own_steps(path: &str, ends_in_call: bool) -> Vec<&str> {
    let steps: Vec<_> = path.split('/').collect();
    let end = steps.len() - usize::from(ends_in_call);
    let call = steps[..end].iter().rposition(|step| is_call(step));
    let first_agent = call.map_or(0, |call| call + 1);
    steps[(first_agent + 1).min(steps.len())..].to_vec()
}

/// Returns whether a step of a path is a tool call, such as `m3.1`.
fn is_call(step: &str) -> bool {
    step.rsplit_once('.').is_some_and(|(message, index)| {
        !message.is_empty() && !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns whether a variable existed when the model wrote this message.
pub(super) fn existed_before(variable: &Variable, message: &str) -> bool {
    match (place::number(&variable.message), place::number(message)) {
        (Some(earlier), Some(now)) => earlier < now,
        _ => variable.message != message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_read_as_it_was_written() {
        let labels = [Label::trusted(), Label::untrusted(), Label::unknown()];
        for label in &labels {
            let mut turn = Turn::new(label.clone(), BTreeSet::new());
            // Of a place that is written twice, the last counts.
            let mut expected = BTreeMap::new();
            for (number, call) in [0, 1, 63, 64, 70, 1, 0, 64].into_iter().enumerate() {
                let brought = Brought {
                    variable: (number == 1).then(|| "@m1.0".to_owned()),
                    ..Brought::shown(labels[number % 3].clone())
                };
                turn.set_result(call, brought.clone());
                expected.insert(call, brought);
                let read = Turn::read(&turn.entry()).unwrap();
                assert_eq!(read.label, *label);
                for place in [0, 1, 2, 62, 63, 64, 65, 70] {
                    let result = read.result(place).map(Cow::into_owned);
                    assert_eq!(result.as_ref(), expected.get(&place), "{label:?} {place}");
                }
            }
        }
        let mut plain = Turn::new(Label::trusted(), BTreeSet::new());
        plain.set_result(1, Brought::shown(Label::trusted()));
        assert_eq!(plain.entry(), json!(2));
        plain.set_result(1, Brought::shown(Label::unknown()));
        assert!(plain.entry().is_object() && !plain.result(1).unwrap().label.is_trusted());
    }

    #[test]
    fn own_steps_begin_below_the_agent_in_the_call() {
        let own = |path, ends_in_call| own_steps(path, ends_in_call).join("/");
        assert_eq!(own("boss/m1.0", true), "m1.0");
        assert_eq!(own("boss/writer/m1.0", true), "writer/m1.0");
        assert_eq!(own("boss/m1.0/worker/m3.1", true), "m3.1");
        assert_eq!(own("boss/m1.0/worker//2/m3.1", true), "/2/m3.1");
        assert_eq!(own("boss", false), "");
        assert_eq!(own("boss/helper", false), "helper");
        assert_eq!(own("boss/m1.0/worker", false), "");
        assert_eq!(own("boss/m1.0/worker/helper", false), "helper");
    }
}
