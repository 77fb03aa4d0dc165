//! Types by name, for people.

/// `tower::timeout::TimeoutLayer` as `TimeoutLayer`, generics left off.
pub(crate) fn short_type_name<T: ?Sized>() -> &'static str {
    let name = std::any::type_name::<T>();
    let name = name.split('<').next().unwrap_or(name);
    name.rsplit("::").next().unwrap_or(name)
}
