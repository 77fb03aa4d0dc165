//! JSON pointers in which `*` stands for any element.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A JSON pointer such as `/to` or `/*/id`. `*` stands for any key or index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PointerPattern {
    text: Arc<str>,
    steps: Vec<PointerStep>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum PointerStep {
    Any,
    Key(String),
}

impl PointerStep {
    fn matches(&self, key: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Key(own) => own == key,
        }
    }
}

impl PointerPattern {
    pub(super) fn new(text: &str) -> Self {
        let steps = steps(text).into_iter().map(|key| match &*key {
            "*" => PointerStep::Any,
            _ => PointerStep::Key(key),
        });
        Self {
            steps: steps.collect(),
            text: text.into(),
        }
    }

    /// Returns whether this points at the value at `path` or at one around it.
    pub(super) fn covers(&self, path: &[String]) -> bool {
        self.steps.len() <= path.len() && self.agrees(path)
    }

    /// Returns whether this points at a value inside the one at `path`.
    pub(super) fn is_inside(&self, path: &[String]) -> bool {
        self.steps.len() > path.len() && self.agrees(path)
    }

    fn agrees(&self, path: &[String]) -> bool {
        let pairs = self.steps.iter().zip(path);
        pairs.into_iter().all(|(step, key)| step.matches(key))
    }

    /// Returns how exactly this points: more steps, and then fewer stars, are more exact.
    pub(super) fn exactness(&self) -> (usize, usize) {
        let keys = self.steps.iter().filter(|step| **step != PointerStep::Any);
        (self.steps.len(), keys.count())
    }

    /// Calls `found` with each value that this points at, and its path. A star stands for the
    /// elements of lists alone if `lists_only`.
    pub(super) fn each<'v>(
        &self,
        value: &'v Value,
        lists_only: bool,
        found: &mut dyn FnMut(&[String], &'v Value),
    ) {
        walk(&self.steps, value, lists_only, &mut Vec::new(), found);
    }

    /// Returns the keys that this names.
    pub(super) fn keys(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().filter_map(|step| match step {
            PointerStep::Any => None,
            PointerStep::Key(key) => Some(&**key),
        })
    }
}

fn walk<'v>(
    steps: &[PointerStep],
    value: &'v Value,
    lists_only: bool,
    path: &mut Vec<String>,
    found: &mut dyn FnMut(&[String], &'v Value),
) {
    let Some((step, below)) = steps.split_first() else {
        return found(path, value);
    };
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let key = index.to_string();
                if step.matches(&key) {
                    path.push(key);
                    walk(below, item, lists_only, path, found);
                    path.pop();
                }
            }
        }
        Value::Object(_) if lists_only && *step == PointerStep::Any => {}
        Value::Object(entries) => {
            for (key, item) in entries {
                if step.matches(key) {
                    path.push(key.clone());
                    walk(below, item, lists_only, path, found);
                    path.pop();
                }
            }
        }
        _ => {}
    }
}

impl fmt::Display for PointerPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for PointerPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PointerPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::new(&text))
    }
}

/// Returns the steps of a JSON pointer.
pub(super) fn steps(pointer: &str) -> Vec<String> {
    let Some(below_root) = pointer.strip_prefix('/') else {
        // The empty pointer is the whole value.
        return match pointer {
            "" => Vec::new(),
            name => vec![unescaped(name)],
        };
    };
    below_root.split('/').map(unescaped).collect()
}

fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Returns the JSON pointer with these steps.
pub(super) fn pointer(path: &[String]) -> String {
    let mut pointer = String::new();
    for step in path {
        pointer.push('/');
        pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
    }
    pointer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_star_stands_for_any_element() {
        let ids = PointerPattern::new("/*/id");
        assert!(ids.covers(&steps("/0/id")) && ids.covers(&steps("/7/id/inner")));
        assert!(!ids.covers(&steps("/0/body")) && !ids.covers(&steps("/0")));
        assert!(ids.is_inside(&steps("/0")) && !ids.is_inside(&steps("/0/id")));
        let mut found = Vec::new();
        let value = json!([{ "id": 1 }, { "id": 2, "body": 3 }]);
        ids.each(&value, true, &mut |path, value| {
            found.push((pointer(path), value.clone()))
        });
        assert_eq!(
            found,
            [("/0/id".into(), json!(1)), ("/1/id".into(), json!(2))]
        );
    }

    #[test]
    fn keys_of_a_value_are_escaped() {
        let path = vec!["a/b".to_owned(), "~".to_owned()];
        assert_eq!(pointer(&path), "/a~1b/~0");
        assert_eq!(steps(&pointer(&path)), path);
    }
}
