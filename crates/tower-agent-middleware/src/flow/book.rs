//! The labels and variables of a conversation, in its private state.
//!
//! Each entry has a key of its own, so that a journal that stores what a call has changed stores little.
//! The entries of an agent that works in a tool call are removed with the call.

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
    /// What the calls have brought, by their places.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) results: BTreeMap<usize, Brought>,
}

/// What a call has brought, as the model reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    prefix: String,
}

impl<'a> Book<'a> {
    pub(super) fn of(context: &'a RunContext) -> Self {
        Self {
            state: context.private_state(),
            prefix: context
                .outer_call_key(KEY)
                .unwrap_or_else(|| KEY.to_owned()),
        }
    }

    fn key(&self, kind: &str, name: &str) -> String {
        format!("{} {kind} {name}", self.prefix)
    }

    fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        // An entry that cannot be read counts as none: what has no label is not trusted.
        self.state.read(key, |value| T::deserialize(value?).ok())
    }

    fn write(&self, key: String, value: &impl Serialize) {
        self.state.set(key, json!(value));
    }

    pub(super) fn turn(&self, message: &str) -> Option<Turn> {
        self.read(&self.key("message", message))
    }

    pub(super) fn set_turn(&self, message: &str, turn: &Turn) {
        self.write(self.key("message", message), turn);
    }

    /// Records what a call has brought.
    pub(super) fn set_result(&self, message: &str, call: usize, brought: &Brought) {
        let key = self.key("message", message);
        self.state.update(key, |value| {
            let mut turn = Turn::deserialize(&*value).unwrap_or_else(|_| Turn {
                // The model was called without the guard.
                label: Label::unknown(),
                ..Turn::default()
            });
            turn.results.insert(call, brought.clone());
            *value = json!(turn);
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

/// Records the label of what an agent reads that works in a tool call.
pub(super) fn note_read(agent: &RunContext, label: &Label) {
    let Some(key) = agent.outer_call_key(&format!("{KEY} inside")) else {
        return;
    };
    let state = agent.private_state();
    let earlier: Option<Label> = state.read(&key, |value| Label::deserialize(value?).ok());
    let joined = earlier
        .as_ref()
        .map_or(label.clone(), |earlier| earlier.join(label));
    if earlier.as_ref() != Some(&joined) {
        state.set(key, json!(joined));
    }
}

/// Returns the label of what agents have read that work in this tool call. `None` if none has read
/// anything with the guard around its model.
pub(super) fn noted_inside(call: &RunContext) -> Option<Label> {
    let key = call.call_key(&format!("{KEY} inside"));
    call.private_state()
        .read(&key, |value| Label::deserialize(value?).ok())
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
