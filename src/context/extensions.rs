//! Typed data of one call or of one run.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use crate::any_value::AnyValue;

/// A map from type to value: the data of one call, or what the caller
/// [gave](crate::AgentRequest::with_extension) a whole run.
///
/// In the map of a call, a `before` can store data for the `after` of the same call; parallel calls
/// do not share it. Cloning is O(1): clones share their values until one of them changes.
///
/// ```
/// use tower_agent::call::Extensions;
///
/// #[derive(Debug, PartialEq)]
/// struct Started(u64);
///
/// let mut extensions = Extensions::new();
/// extensions.insert(Started(7));
/// assert_eq!(extensions.get::<Started>(), Some(&Started(7)));
/// assert!(extensions.remove::<Started>().is_some());
/// assert!(extensions.is_empty());
/// ```
#[derive(Clone, Default)]
pub struct Extensions(Option<Arc<Vec<(TypeId, AnyValue)>>>);

impl Extensions {
    /// Creates an empty map; it allocates on the first insert.
    #[must_use]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Stores `value` under its type and returns the previous value.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) -> Option<Arc<T>> {
        self.put(TypeId::of::<T>(), AnyValue::new(value))?
            .downcast()
    }

    fn put(&mut self, id: TypeId, value: AnyValue) -> Option<AnyValue> {
        let Some(entries) = &mut self.0 else {
            // With room for one, which is what most calls have.
            self.0 = Some(Arc::new(vec![(id, value)]));
            return None;
        };
        let entries = Arc::make_mut(entries);
        match entries.iter_mut().find(|(known, _)| *known == id) {
            Some((_, known)) => Some(std::mem::replace(known, value)),
            None => {
                entries.push((id, value));
                None
            }
        }
    }

    pub(super) fn extend(&mut self, other: &Self) {
        let Some(more) = &other.0 else { return };
        if self.is_empty() {
            *self = other.clone();
            return;
        }
        for (id, value) in more.iter() {
            self.put(*id, value.clone());
        }
    }

    /// Returns the value of type `T`.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        // A call has a few of them: to look at each takes less time than to hash one.
        let id = TypeId::of::<T>();
        let mut entries = self.0.as_ref()?.iter();
        let (_, value) = entries.find(|(known, _)| *known == id)?;
        value.downcast_ref()
    }

    /// Removes the value of type `T` and returns it.
    pub fn remove<T: Send + Sync + 'static>(&mut self) -> Option<Arc<T>> {
        let entries = self.0.as_mut()?;
        // Found before the list is copied from the clones that share it.
        let id = TypeId::of::<T>();
        let at = entries.iter().position(|(known, _)| *known == id)?;
        Arc::make_mut(entries).remove(at).1.downcast()
    }

    /// Returns whether the map is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|entries| entries.is_empty())
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.0.iter().flat_map(|entries| entries.iter());
        f.debug_set()
            .entries(entries.map(|(_, value)| value))
            .finish()
    }
}
