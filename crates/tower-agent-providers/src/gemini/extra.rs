use std::borrow::Cow;

use serde_json::{Map, Value};

/// Returns the extra fields without those that are merged with ours.
pub(super) fn without<'a>(
    extra: &'a Map<String, Value>,
    merged: &[(&str, bool)],
) -> Cow<'a, Map<String, Value>> {
    // Most requests have none of them, and copy nothing.
    if !extra.keys().any(|name| is_merged(name, merged)) {
        return Cow::Borrowed(extra);
    }
    let mut fields = extra.clone();
    fields.retain(|name, _| !is_merged(name, merged));
    Cow::Owned(fields)
}

fn is_merged(name: &str, merged: &[(&str, bool)]) -> bool {
    merged.contains(&(name, true))
}
