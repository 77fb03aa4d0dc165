//! What stands in an order that is known to be bad.
//!
//! Types are known by their names, so it sees only this crate's own guards, where they are
//! registered as themselves: not inside another type, nor a layer of anybody else's.

use crate::call::CallKind;

/// A guard that should not stand outside another one, and why.
struct Rule {
    outer: &'static str,
    inner: &'static str,
    why: &'static str,
}

const RULES: [Rule; 4] = [
    Rule {
        outer: "budget",
        inner: "retry",
        why: "the budget counts a call once, whatever the attempts inside it cost; register it \
              after the retry",
    },
    Rule {
        outer: "retry",
        inner: "approval",
        why: "another attempt cannot change what a person has decided; register the approval \
              before the retry",
    },
    Rule {
        outer: "retry",
        inner: "fallback",
        why: "each attempt asks every model again; put the retry around each of the models",
    },
    Rule {
        outer: "timeout",
        inner: "fallback",
        why: "a model that hangs uses up the time of those behind it; put a timeout around each \
              of the models",
    },
];

/// Warns of each pair in a bad order. `types` are those registered for one call, outermost first.
pub(super) fn check(agent: &str, call: CallKind, types: &[&'static str]) {
    for (index, outer) in types.iter().enumerate() {
        for inner in &types[index + 1..] {
            for Rule { why, .. } in RULES.iter().filter(|rule| rule.is_of(outer, inner)) {
                tracing::warn!(agent, %call, outer, inner, "a bad order: {why}");
            }
        }
    }
}

impl Rule {
    fn is_of(&self, outer: &'static str, inner: &'static str) -> bool {
        guard(outer) == Some(self.outer) && guard(inner) == Some(self.inner)
    }
}

/// Which guard a type is of.
fn guard(name: &'static str) -> Option<&'static str> {
    let own = concat!(env!("CARGO_CRATE_NAME"), "::guard::");
    // The type itself, or one handle around it.
    let rest = name.strip_prefix("alloc::sync::Arc<").unwrap_or(name).strip_prefix(own)?;
    rest.split("::").next()
}
