use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// The first difference of a request from the recorded one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The field, such as `messages[2].parts[0].text`.
    pub field: String,
    /// The recorded text, cut around the difference.
    pub recorded: String,
    /// The text of the request, cut around the difference.
    pub received: String,
}

/// The length of a text that is shown.
const SHOWN: usize = 120;

/// The length of it before the difference.
const BEFORE: usize = 40;

const NOTHING: &str = "nothing";

impl Difference {
    /// Returns the first difference, or `None` if there is none.
    pub(super) fn first(recorded: &Value, received: &Value) -> Option<Self> {
        first(String::new(), recorded, received)
    }
}

fn first(field: String, recorded: &Value, received: &Value) -> Option<Difference> {
    if recorded == received {
        return None;
    }
    match (recorded, received) {
        // Values of different types or roles have no fields in common.
        (Value::Object(old), Value::Object(new))
            if ["type", "role"]
                .iter()
                .all(|key| old.get(*key) == new.get(*key)) =>
        {
            let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
            keys.into_iter().find_map(|key| {
                let dot = if field.is_empty() { "" } else { "." };
                either(format!("{field}{dot}{key}"), old.get(key), new.get(key))
            })
        }
        (Value::Array(old), Value::Array(new)) => (0..old.len().max(new.len()))
            .find_map(|at| either(format!("{field}[{at}]"), old.get(at), new.get(at))),
        (old, new) => {
            let (recorded, received) = match (old, new) {
                (Value::String(old), Value::String(new)) => around(old, new),
                (old, new) => around(&old.to_string(), &new.to_string()),
            };
            let field = if field.is_empty() {
                "request".to_owned()
            } else {
                field
            };
            Some(Difference {
                field,
                recorded,
                received,
            })
        }
    }
}

fn either(field: String, old: Option<&Value>, new: Option<&Value>) -> Option<Difference> {
    let shown = |value: Option<&Value>| {
        value.map_or_else(|| NOTHING.to_owned(), |value| cut(&value.to_string(), 0))
    };
    match (old, new) {
        (Some(old), Some(new)) => first(field, old, new),
        (None, None) => None,
        (old, new) => Some(Difference {
            field,
            recorded: shown(old),
            received: shown(new),
        }),
    }
}

/// Returns both texts, cut around their first difference.
fn around(old: &str, new: &str) -> (String, String) {
    let same = old
        .chars()
        .zip(new.chars())
        .take_while(|(old, new)| old == new)
        .count();
    (cut(old, same), cut(new, same))
}

fn cut(text: &str, at: usize) -> String {
    let length = text.chars().count();
    if length <= SHOWN {
        return text.to_owned();
    }
    let start = at.saturating_sub(BEFORE).min(length - SHOWN);
    let before = if start > 0 { ".." } else { "" };
    let after = if start + SHOWN < length { ".." } else { "" };
    let shown: String = text.chars().skip(start).take(SHOWN).collect();
    format!("{before}{shown}{after}")
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |text: &str| text.replace('\n', "\n              ");
        writeln!(f, "  {}", self.field)?;
        writeln!(f, "    recorded: {}", line(&self.recorded))?;
        write!(f, "    received: {}", line(&self.received))
    }
}
