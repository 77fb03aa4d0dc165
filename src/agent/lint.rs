//! Warns about middleware in an order that is known to be wrong.
//!
//! Middleware of this crate states its purpose; nothing is recognised by the name of a type.

use std::sync::Arc;

use crate::call::CallKind;
use crate::callback::{Purpose, Registered};
use crate::tool::{Effect, ToolDeclaration};

/// Returns why the one should not be outside the other around this call.
fn advice(call: CallKind, outer: Purpose, inner: Purpose) -> Option<&'static str> {
    Some(match (call, outer, inner) {
        (CallKind::Tool, Purpose::Retry, Purpose::Approval) => {
            "another attempt cannot change what the person decided; register the approval before \
             the retry"
        }
        (CallKind::Model, Purpose::Retry, Purpose::Fallback) => {
            "each attempt calls every model again; put the retry around each of the models"
        }
        (CallKind::Model, Purpose::Timeout, Purpose::Fallback) => {
            "a model that hangs uses up the time of the models after it; put a timeout around each \
             of the models"
        }
        _ => return None,
    })
}

const OPEN_SIDE: &str = "one of them sees data that the redaction hides from others; pass the \
                         redaction to `global_callbacks` or `callbacks`, before everything else";

/// Returns whether a redaction is placed so that something else registered for the call sees what
/// it hides: what is outside sees the model's input, and what is inside sees the output, unless the
/// redaction is also innermost.
fn has_open_side(call: CallKind, outer: Option<Purpose>, inner: Option<Purpose>) -> bool {
    let is_redaction = |purpose| matches!(purpose, Some(Purpose::Redaction { .. }));
    let is_bare = outer == Some(Purpose::Redaction { innermost: false });
    let is_late = call == CallKind::Model && is_redaction(inner);
    // A fallback is the model that was registered: no redaction is inside it.
    let is_model = inner == Some(Purpose::Fallback);
    (is_late || is_bare) && is_redaction(outer) != is_redaction(inner) && !is_model
}

/// Warns about each pair in a wrong order around the model. `registered` is in order, outermost
/// first.
pub(super) fn check_model(agent: &str, registered: &[Registered]) {
    check(agent, CallKind::Model, registered);
}

/// Warns about each pair in a wrong order around the tools.
pub(super) fn check_tools(agent: &str, registered: &[Registered]) {
    check(agent, CallKind::Tool, registered);
}

fn check(agent: &str, call: CallKind, registered: &[Registered]) {
    let mut told = Vec::new();
    for (index, outer) in registered.iter().enumerate() {
        for inner in &registered[index + 1..] {
            let open_side = has_open_side(call, outer.purpose, inner.purpose).then_some(OPEN_SIDE);
            let advice = open_side.or_else(|| advice(call, outer.purpose?, inner.purpose?));
            let Some(advice) = advice.filter(|_| !told.contains(&(outer, inner))) else {
                continue;
            };
            told.push((outer, inner));
            let (outer, inner) = (&*outer.name, &*inner.name);
            tracing::warn!(agent, %call, outer, inner, "wrong middleware order: {advice}");
        }
    }
}

/// Warns about retries that never repeat a tool call. Each tool says whether it has a retry of its
/// own; `registered` is what is around all of them.
pub(super) fn check_retries<'a>(
    agent: &str,
    tools: impl Iterator<Item = (&'a Arc<ToolDeclaration>, bool)> + Clone,
    registered: &[Registered],
) {
    let is_mutating = |tool: &ToolDeclaration| tool.effect() == Effect::Mutating;
    let is_around_all = has_retry(registered) && tools.clone().all(|(tool, _)| is_mutating(tool));
    for (tool, has_own) in tools {
        if is_mutating(tool) && (is_around_all || has_own) {
            let tool = tool.name();
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

pub(super) fn has_retry(registered: &[Registered]) -> bool {
    registered
        .iter()
        .any(|it| it.purpose == Some(Purpose::Retry))
}
