//! The labels and variables of a conversation, in its private state.
//!
//! Each entry has a key of its own, so that a journal that stores what a call has changed stores
//! little. The entries are read from the state whenever they are needed, and are in no second
//! place: a replay may change them. The entries of an agent that works in a tool call are removed
//! with the call.

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower_agent::context::{RunContext, State};
use tower_agent::message::{MessageId, Part};

use super::label::Label;
use super::place::TurnId;
use super::pointer::PointerPattern;
use super::trusted_turns;
use super::turn::{Brought, Turn, bit};

/// The key of everything that the guard keeps.
pub(super) const KEY: &str = "tower_agent.guard.flow";

/// The key that says that a turn has an entry of its own.
const ANY_OWN: &str = "tower_agent.guard.flow any message";

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

    /// Returns the entries of the outermost agent of a run that has ended, by its private state.
    pub(super) fn of_ended(state: &'a State) -> Self {
        Self {
            state,
            prefix: Cow::Borrowed(KEY),
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

    /// Returns the key of the [trusted turns](trusted_turns) of a conversation.
    fn trusted_key(&self, conversation: &str) -> String {
        self.key("trusted", conversation)
    }

    fn turn_key(&self, turn: &TurnId<'_>) -> String {
        self.key("message", &turn.to_string())
    }

    /// Returns the bits of the calls with a trusted result, if this is one of the trusted turns.
    fn trusted_calls(&self, turn: &TurnId<'_>) -> Option<u64> {
        let TurnId::OfRun {
            conversation,
            number,
        } = turn
        else {
            return None;
        };
        let key = self.trusted_key(conversation);
        self.state
            .read(&key, |entry| trusted_turns::find(entry, *number))
    }

    /// Returns what is known about a message.
    pub(super) fn turn(&self, turn: &TurnId<'_>) -> Option<Turn> {
        // Among the trusted ones first: an entry of its own may be that of an earlier attempt.
        if let Some(calls) = self.trusted_calls(turn) {
            return Some(Turn::trusted(calls));
        }
        self.state
            .read(&self.turn_key(turn), |entry| Turn::read(entry?))
    }

    /// Records what is known about a message of the model. `calls_before` is the number of calls of
    /// the message of the model before it, if that has the number before.
    pub(super) fn set_model_turn(&self, id: &TurnId<'_>, turn: &Turn, calls_before: Option<usize>) {
        match (id, turn.as_trusted()) {
            (
                TurnId::OfRun {
                    conversation,
                    number,
                },
                Some(calls),
            ) => {
                // Results of an earlier attempt do not count. In most conversations no turn has an
                // entry of its own, and its key is not needed.
                if self.state.read(ANY_OWN, |any| any.is_some()) {
                    self.state.remove(&self.turn_key(id));
                }
                self.state.update(self.trusted_key(conversation), |entry| {
                    trusted_turns::add(entry, *number, calls, calls_before);
                });
            }
            _ => self.set_turn(id, turn),
        }
    }

    /// Records what is known about a message, in an entry of its own.
    pub(super) fn set_turn(&self, id: &TurnId<'_>, turn: &Turn) {
        self.note_own();
        self.state.set(self.turn_key(id), turn.entry());
        self.take_trusted(id);
    }

    /// Records that a turn has an entry of its own.
    fn note_own(&self) {
        // With every entry and not once: the changes of a call may be all that is replayed.
        self.state.set(ANY_OWN, true);
    }

    /// Removes a turn from the trusted ones. Returns the bits of its calls with a trusted result.
    fn take_trusted(&self, turn: &TurnId<'_>) -> Option<u64> {
        self.trusted_calls(turn)?;
        match turn {
            TurnId::OfRun {
                conversation,
                number,
            } => self.state.update(self.trusted_key(conversation), |entry| {
                trusted_turns::take(entry, *number)
            }),
            TurnId::Other(_) => None,
        }
    }

    /// Records what a call has brought.
    pub(super) fn set_result(&self, id: &TurnId<'_>, call: usize, brought: Brought) {
        let is_trusted_turn = if let TurnId::OfRun {
            conversation,
            number,
        } = id
        {
            let key = self.trusted_key(conversation);
            // What is trusted is brought in a trusted turn, so that the key has an entry.
            let is_plain = brought.is_plain(&Label::trusted()) && bit(call) != 0;
            let mark = |entry: &mut Value| trusted_turns::mark(entry, *number, bit(call));
            if is_plain && self.state.update(&key, mark) {
                return;
            }
            let found = |entry: Option<&Value>| trusted_turns::find(entry, *number).is_some();
            self.state.read(&key, found)
        } else {
            false
        };
        self.note_own();
        let key = self.turn_key(id);
        self.state.update(&key, |entry| {
            let mut turn = match Turn::read(entry) {
                // Labels of an earlier attempt do not count.
                Some(turn) if !is_trusted_turn || turn.label == Label::trusted() => turn,
                _ if is_trusted_turn => Turn::trusted(0),
                // Without a turn, the model was called without the guard.
                _ => Turn::new(Label::unknown(), Vec::new()),
            };
            turn.set_result(call, brought);
            *entry = turn.entry();
        });
        // Only now, so that a call that runs at the same time finds the turn in one place or the
        // other.
        if let Some(calls) = self.take_trusted(id) {
            self.state.update(&key, |entry| {
                if let Some(mut turn) = Turn::read(entry) {
                    turn.add_plain(calls);
                    *entry = turn.entry();
                }
            });
        }
    }

    /// Returns where all of this is kept.
    pub(super) fn state(&self) -> &State {
        self.state
    }

    pub(super) fn variable(&self, name: &str) -> Option<Variable> {
        self.read(&self.key("variable", name))
    }

    /// Keeps a variable, unless all of them then take more than this many bytes. Returns whether it
    /// did.
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

    /// Counts bits that the model learns of what it has not read. Returns `false`, and counts
    /// nothing, if these would be more than `max`.
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

/// Returns whether a variable existed when the model wrote this message.
pub(super) fn existed_before(variable: &Variable, message: &TurnId<'_>) -> bool {
    let earlier = MessageId::from(&*variable.message);
    match (earlier.place(), message.number()) {
        (Some(earlier), Some(now)) => earlier.number < now,
        _ => variable.message != message.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_in_one_place() {
        let context = RunContext::default();
        let book = Book::of(&context);
        let id = |number| TurnId::OfRun {
            conversation: "run".into(),
            number,
        };
        let result = |number, call| {
            let turn = book.turn(&id(number))?;
            Some(turn.result(call)?.label.clone())
        };
        book.set_model_turn(&id(1), &Turn::trusted(0), None);
        book.set_result(&id(1), 0, Brought::shown(Label::trusted()));
        book.set_model_turn(&id(2), &Turn::trusted(0), Some(1));
        let trusted = context
            .private_state()
            .get("tower_agent.guard.flow trusted run");
        assert_eq!(trusted, Some(json!([1, 2, 0])));
        assert_eq!(context.private_state().snapshot().len(), 1);

        // One result of three is not trusted, and is recorded between the others.
        for (call, label) in [
            (0, Label::trusted()),
            (1, Label::untrusted()),
            (2, Label::trusted()),
        ] {
            book.set_result(&id(2), call, Brought::shown(label.clone()));
            assert_eq!(result(2, call), Some(label), "{call}");
        }
        assert_eq!(result(2, 0), Some(Label::trusted()));
        assert_eq!(result(2, 3), None);
        assert_eq!(result(1, 0), Some(Label::trusted()));
        assert_eq!(book.turn(&id(2)).unwrap().label, Label::trusted());

        // Made again, the turn has no results; and then it is no trusted one any more.
        book.set_model_turn(&id(2), &Turn::trusted(0), Some(1));
        assert_eq!(result(2, 1), None);
        book.set_result(&id(2), 0, Brought::shown(Label::unknown()));
        assert_eq!(result(2, 0), Some(Label::unknown()));
        book.set_model_turn(&id(2), &Turn::new(Label::unknown(), Vec::new()), Some(1));
        assert_eq!(book.turn(&id(2)).unwrap().label, Label::unknown());
        assert_eq!(result(3, 0), None);
    }
}
