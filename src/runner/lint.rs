//! What stands in an order that is known to be bad.
//!
//! Types are known by their names, so it sees only this crate's own guards, where they are
//! registered as themselves: not inside another type, nor a layer of anybody else's.

use crate::call::CallKind;
use crate::type_name::shorten;

/// A guard that should not stand outside another one around this call, and why.
struct Rule {
    call: CallKind,
    outer: &'static str,
    inner: &'static str,
    why: &'static str,
}

const RULES: [Rule; 4] = [
    Rule {
        call: CallKind::Model,
        outer: "budget",
        inner: "retry",
        why: "the budget counts a call once, whatever the attempts inside it cost; register it \
              after the retry",
    },
    Rule {
        call: CallKind::Tool,
        outer: "retry",
        inner: "approval",
        why: "another attempt cannot change what a person has decided; register the approval \
              before the retry",
    },
    Rule {
        call: CallKind::Model,
        outer: "retry",
        inner: "fallback",
        why: "each attempt asks every model again; put the retry around each of the models",
    },
    Rule {
        call: CallKind::Model,
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
            for rule in RULES.iter().filter(|rule| rule.call == call && rule.is_of(outer, inner)) {
                let (outer, inner, why) = (shorten(own(outer)), shorten(own(inner)), rule.why);
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
    let guards = concat!(env!("CARGO_CRATE_NAME"), "::guard::");
    own(name).strip_prefix(guards)?.split("::").next()
}

/// The type itself, or what one handle around it holds.
fn own(name: &'static str) -> &'static str {
    name.strip_prefix("alloc::sync::Arc<").unwrap_or(name)
}
