//! Type names for people.

use std::any::type_name;

/// Returns `tower::timeout::TimeoutLayer` as `TimeoutLayer`, without generics.
pub(crate) fn short_type_name<T: ?Sized>() -> &'static str {
    let name = type_name::<T>();
    let name = name.split(['<', '>']).next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns `tower::timeout::Timeout<app::Model>` as `Timeout<Model>`.
pub(crate) fn without_paths(type_name: &str) -> String {
    // Each word ends with the `<`, `,` or `>` after it, so that these stay when the paths go.
    let words = type_name.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    words
        .map(|word| word.rsplit("::").next().unwrap_or(word))
        .collect()
}
