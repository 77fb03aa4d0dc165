//! Types by name, for people.

/// `tower::timeout::TimeoutLayer` as `TimeoutLayer`, generics left off.
pub(crate) fn short_type_name<T: ?Sized>() -> &'static str {
    shorten(std::any::type_name::<T>())
}

/// The same for the name of a type.
pub(crate) fn shorten(name: &'static str) -> &'static str {
    let name = name.split(['<', '>']).next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}
