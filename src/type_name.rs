//! Type names for people: the parts of a composed layer or service.

/// Returns `tower::timeout::TimeoutLayer` as `TimeoutLayer`, without generics.
pub(crate) fn short_type_name<T: ?Sized>() -> &'static str {
    shorten(std::any::type_name::<T>())
}

/// Shortens the name of a type.
pub(crate) fn shorten(name: &'static str) -> &'static str {
    let name = name.split(['<', '>']).next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns the layers of a composed layer, outermost first: those of a `ServiceBuilder`, a
/// `StackBuilder` or a tuple. Any other layer is returned itself.
pub(crate) fn layers(name: &'static str) -> Vec<&'static str> {
    match (path(name), &arguments(name)[..]) {
        ("tower_layer::stack::Stack", [inner, outer]) => [layers(outer), layers(inner)].concat(),
        ("tower::builder::ServiceBuilder", [one]) | ("alloc::sync::Arc", [one]) => layers(one),
        ("tower_layer::identity::Identity", []) => Vec::new(),
        ("", several) => several.iter().flat_map(|layer| layers(layer)).collect(),
        _ => vec![name],
    }
}

/// Returns the inner services of a service, if its type reveals them: that of a layer, or the
/// models of a `Fallback`.
pub(crate) fn services_inside(name: &'static str) -> Vec<&'static str> {
    const AROUND_FIRST: [&str; 19] = [
        "AndThen",
        "AsyncFilter",
        "CallRetry",
        "CallTimeout",
        "CallbackService",
        "ConcurrencyLimit",
        "Filter",
        "LoadShed",
        "MapErr",
        "MapFuture",
        "MapRequest",
        "MapResponse",
        "MapResult",
        "RateLimit",
        "Retry",
        "SpawnReady",
        "Then",
        "Timeout",
        "WrapService",
    ];
    let arguments = arguments(name);
    let is_known = name.starts_with("tower::") || is_own(name);
    match (shorten(name), &arguments[..]) {
        ("Fallback", [first, others @ ..]) if is_own(name) => {
            let others = others.iter().flat_map(|others| listed(others));
            std::iter::once(*first).chain(others).collect()
        }
        ("Retry", [_, inner]) if name.starts_with("tower::retry::") => vec![inner],
        (short, [inner, ..]) if is_known && AROUND_FIRST.contains(&short) => vec![inner],
        _ => Vec::new(),
    }
}

fn is_own(name: &str) -> bool {
    name.strip_prefix(env!("CARGO_CRATE_NAME")).is_some_and(|rest| rest.starts_with("::"))
}

/// Returns the types of a list such as `((), A), B)`; for a list of many of one type, that type.
fn listed(name: &'static str) -> Vec<&'static str> {
    match (path(name), &arguments(name)[..]) {
        ("", [before, last]) => [listed(before), listed(last)].concat(),
        ("", []) => Vec::new(),
        ("alloc::vec::Vec", [item, ..]) => vec![item],
        _ => vec![name],
    }
}

/// Returns the part before the generics; nothing for a tuple.
fn path(name: &'static str) -> &'static str {
    name.split(['<', '(']).next().unwrap_or(name)
}

/// Returns the generics, or the members of a tuple.
fn arguments(name: &'static str) -> Vec<&'static str> {
    let inside = match (name.find(['<', '(']), name.len().checked_sub(1)) {
        (Some(open), Some(close)) if name.ends_with(['>', ')']) => &name[open + 1..close],
        _ => return Vec::new(),
    };
    let (mut found, mut depth, mut from, mut before) = (Vec::new(), 0_usize, 0, ' ');
    for (at, c) in inside.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            // Not that of a function's `->`.
            '>' if before == '-' => {}
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(inside[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    found.push(inside[from..].trim());
    found.retain(|argument| !argument.is_empty());
    found
}
