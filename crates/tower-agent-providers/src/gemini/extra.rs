use std::borrow::Cow;

use serde_json::{Map, Value};

/// Returns the extra fields without those that are merged with ours.
pub(super) fn without<'a>(
    extra: &'a Map<String, Value>,
    merged: &[(&str, bool)],
) -> Cow<'a, Map<String, Value>> {
    let is_merged = |name: &String| merged.iter().any(|(it, is)| *is && it == name);
    if !extra.keys().any(is_merged) {
        return Cow::Borrowed(extra);
    }
    let rest = extra.iter().filter(|(name, _)| !is_merged(name));
    Cow::Owned(
        rest.map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}
