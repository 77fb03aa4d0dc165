//! The labels of a message of the model and of the calls in it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::label::Label;

/// The labels of a message of the model and of the calls in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Turn {
    /// The label of all that the model had read.
    pub(super) label: Label,
    /// The tools whose untrusted results it had read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<String>,
    /// The places of the calls whose results the model reads, with the turn's own label: a bit for
    /// each.
    #[serde(default, skip_serializing_if = "is_zero")]
    plain: u64,
    /// The results of other calls, by their places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    others: Vec<(usize, Brought)>,
}

fn is_zero(bits: &u64) -> bool {
    *bits == 0
}

impl Turn {
    /// Creates a message without calls.
    pub(super) fn new(label: Label, sources: Vec<String>) -> Self {
        Self {
            label,
            sources,
            ..Self::default()
        }
    }

    /// Creates a message whose model had read what is trusted and for everybody, as have the
    /// results of the calls with these bits.
    pub(super) fn trusted(plain: u64) -> Self {
        Self {
            plain,
            ..Self::default()
        }
    }

    /// Returns the bits of the calls with such results, if all that is known about the message is
    /// trusted and for everybody.
    pub(super) fn as_trusted(&self) -> Option<u64> {
        let is_trusted =
            self.label == Label::trusted() && self.sources.is_empty() && self.others.is_empty();
        is_trusted.then_some(self.plain)
    }

    /// Reads an entry. `None` if it cannot be read: what has no label is not trusted.
    pub(super) fn read(entry: &Value) -> Option<Self> {
        match entry.as_u64() {
            Some(plain) => Some(Self::trusted(plain)),
            None => Self::deserialize(entry).ok(),
        }
    }

    /// Returns the entry of this turn.
    pub(super) fn entry(&self) -> Value {
        self.as_trusted().map_or_else(|| json!(self), Value::from)
    }

    /// Returns what the call at this place has brought.
    pub(super) fn result(&self, call: usize) -> Option<Cow<'_, Brought>> {
        match self.others.iter().find(|(other, _)| *other == call) {
            Some((_, brought)) => Some(Cow::Borrowed(brought)),
            None if self.plain & bit(call) != 0 => {
                Some(Cow::Owned(Brought::shown(self.label.clone())))
            }
            None => None,
        }
    }

    /// Records what the call at this place has brought.
    pub(super) fn set_result(&mut self, call: usize, brought: Brought) {
        self.others.retain(|(other, _)| *other != call);
        if brought.is_plain(&self.label) && bit(call) != 0 {
            self.plain |= bit(call);
        } else {
            self.plain &= !bit(call);
            self.others.push((call, brought));
        }
    }

    /// Records that the model reads the results of the calls with these bits, with the turn's own
    /// label.
    pub(super) fn add_plain(&mut self, plain: u64) {
        self.plain |= plain;
    }
}

/// Returns the bit of a call, or 0 for one beyond the last bit.
pub(super) fn bit(call: usize) -> u64 {
    let call = u32::try_from(call).unwrap_or(u32::MAX);
    1_u64.checked_shl(call).unwrap_or(0)
}

/// The result of a call, as the model reads it.
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

    /// Returns whether there is nothing to know but that the model reads it, with the label of its
    /// turn.
    pub(super) fn is_plain(&self, turn: &Label) -> bool {
        // Nobody asks where trusted content is from.
        let names_no_tool = self.from.is_empty() || self.label.is_trusted();
        self.variable.is_none() && names_no_tool && self.label == *turn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_turn_is_read_as_it_was_written() {
        let labels = [Label::trusted(), Label::untrusted(), Label::unknown()];
        for label in &labels {
            let mut turn = Turn::new(label.clone(), Vec::new());
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
        let mut plain = Turn::new(Label::trusted(), Vec::new());
        plain.set_result(1, Brought::shown(Label::trusted()));
        assert_eq!(plain.entry(), json!(2));
        plain.set_result(1, Brought::shown(Label::unknown()));
        assert!(plain.entry().is_object() && !plain.result(1).unwrap().label.is_trusted());
    }
}
