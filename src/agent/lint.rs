//! Warns about middleware in an order that is known to be wrong.
//!
//! Types are recognised by name, so it sees only this crate's own middleware: registered directly,
//! in a `ServiceBuilder` stack, or around the models of a `Fallback`; not inside boxes or other
//! layers.

use crate::call::CallKind;
use crate::tool::{Effect, Tool};
use crate::type_name::{layers, services_inside, shorten};

/// Middleware that should not be outside another one around this call, and why.
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
        why: "the budget counts a call once, whatever its attempts cost; register it after the \
              retry",
    },
    Rule {
        call: CallKind::Tool,
        outer: "retry",
        inner: "approval",
        why: "another attempt cannot change what the person decided; register the approval \
              before the retry",
    },
    Rule {
        call: CallKind::Model,
        outer: "retry",
        inner: "fallback",
        why: "each attempt calls every model again; put the retry around each of the models",
    },
    Rule {
        call: CallKind::Model,
        outer: "timeout",
        inner: "fallback",
        why: "a model that hangs uses up the time of the models after it; put a timeout around \
              each of the models",
    },
];

/// Warns about each pair in a wrong order. `types` are those registered for one call, outermost
/// first, and around the service of type `inmost`.
pub(super) fn check(
    agent: &str,
    call: CallKind,
    types: &[&'static str],
    inmost: Option<&'static str>,
) {
    let mut told = Vec::new();
    for path in inmost.map_or_else(|| vec![Vec::new()], paths) {
        let types = [types, &path].concat();
        for (index, outer) in types.iter().enumerate() {
            for (between, inner) in types[index + 1..].iter().enumerate() {
                let between = &types[index + 1..][..between];
                if has_open_side(call, outer, inner) && !told.contains(&(*outer, *inner)) {
                    told.push((*outer, *inner));
                    let (outer, inner) = (shorten(own(outer)), shorten(own(inner)));
                    tracing::warn!(agent, %call, outer, inner, "wrong middleware order: {OPEN_SIDE}");
                }
                // One budget around several models, each with a retry, is the order that the guide
                // recommends.
                let is_of_one_model = between.iter().any(|name| guard(name) == Some("fallback"));
                if is_of_one_model && guard(outer) == Some("budget") {
                    continue;
                }
                for rule in RULES.iter().filter(|it| it.call == call && it.is_of(outer, inner)) {
                    // What is around several models is on the path to each.
                    if told.contains(&(*outer, *inner)) {
                        continue;
                    }
                    told.push((*outer, *inner));
                    let (outer, inner, why) = (shorten(own(outer)), shorten(own(inner)), rule.why);
                    tracing::warn!(agent, %call, outer, inner, "wrong middleware order: {why}");
                }
            }
        }
    }
}

/// Returns the services that a call passes through, for each possible path.
fn paths(service: &'static str) -> Vec<Vec<&'static str>> {
    let inside = services_inside(service);
    let mut paths: Vec<_> = inside.into_iter().flat_map(paths).collect();
    if paths.is_empty() {
        paths.push(Vec::new());
    }
    paths.iter_mut().for_each(|path| path.insert(0, service));
    paths
}

/// Warns about retries that never repeat a tool call. `types` are those registered for tool calls.
pub(super) fn check_retries(agent: &str, tools: &[Tool], types: &[&'static str]) {
    let is_retry = |name: &&'static str| guard(name) == Some("retry");
    let mutating = |tool: &&Tool| tool.declaration().effect() == Effect::Mutating;
    let is_around_all = types.iter().any(is_retry) && tools.iter().all(|tool| mutating(&tool));
    for tool in tools.iter().filter(mutating) {
        let mut own = tool.layers().iter().flat_map(|layer| layers(layer.type_name));
        if is_around_all || own.any(|name| is_retry(&name)) {
            let tool = tool.declaration().name();
            tracing::warn!(
                agent,
                tool,
                "retry has no effect around this tool: the tool's effect is `Mutating` (the \
                 default), so it is never retried; declare `.effect(Effect::Idempotent)` if a \
                 second call does no harm"
            );
        }
    }
}

const OPEN_SIDE: &str = "one of them sees data that the redaction hides from others; pass the \
                         redaction to `global_callbacks` or `callbacks`, before everything else";

/// Returns whether a redaction is placed so that something else registered for the call sees what
/// it hides: what is outside sees the model's input, and what is inside sees the output, unless the
/// redaction is a bundle.
fn has_open_side(call: CallKind, outer: &'static str, inner: &'static str) -> bool {
    let is_redaction = |name| guard(name) == Some("redact");
    let is_bare = is_redaction(outer) && own(outer).ends_with("::Redact");
    let is_late = call == CallKind::Model && is_redaction(inner);
    (is_late || is_bare) && is_redaction(outer) != is_redaction(inner)
}

impl Rule {
    fn is_of(&self, outer: &'static str, inner: &'static str) -> bool {
        guard(outer) == Some(self.outer) && guard(inner) == Some(self.inner)
    }
}

/// Returns the name of the middleware that a type belongs to.
fn guard(name: &'static str) -> Option<&'static str> {
    let guards = concat!(env!("CARGO_CRATE_NAME"), "::middleware::");
    own(name).strip_prefix(guards)?.split("::").next()
}

/// Returns the type itself, or the content of a handle.
fn own(name: &'static str) -> &'static str {
    name.strip_prefix("alloc::sync::Arc<").unwrap_or(name)
}
