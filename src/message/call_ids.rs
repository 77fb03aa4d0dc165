use std::collections::HashSet;
use std::sync::Arc;

/// Gives every tool call of one answer a unique id: results refer to calls by id.
///
/// For a model whose server omits ids or repeats them. The agent does the same for models that do
/// not.
///
/// ```
/// use tower_agent::message::CallIds;
///
/// let mut ids = CallIds::new();
/// let first = ids.claim(&"call_a".into(), || "call_0_0".into());
/// let second = ids.claim(&"call_a".into(), || "call_0_1".into());
/// let third = ids.claim(&"".into(), || "call_0_2".into());
/// assert_eq!([&*first, &*second, &*third], ["call_a", "call_0_1", "call_0_2"]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CallIds(HashSet<Arc<str>>);

impl CallIds {
    /// The maximum length of a call id in bytes: some providers put signatures into it. Every event
    /// of the call contains it.
    pub const MAX_LEN: usize = 16 * 1024;

    /// Creates the ids of an answer without calls.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a call and returns its id: `id`, or the result of `other` if `id` is empty, longer than
    /// [`MAX_LEN`](Self::MAX_LEN), or the id of an earlier call.
    pub fn claim(&mut self, id: &Arc<str>, other: impl FnOnce() -> String) -> Arc<str> {
        if is_valid(id) && self.0.insert(id.clone()) {
            return id.clone();
        }
        let mut other: Arc<str> = other().into();
        // The new id may be in use as well.
        while !self.0.insert(other.clone()) {
            other = format!("{other}'").into();
        }
        other
    }

    /// Returns whether the calls of an answer can keep their ids.
    pub(crate) fn are_unique<'a>(mut ids: impl Iterator<Item = &'a Arc<str>> + Clone) -> bool {
        let mut others = ids.clone();
        let Some(first) = others.next() else {
            return true;
        };
        // Most answers have one call at most, which needs no table.
        if others.next().is_none() {
            return is_valid(first);
        }
        let mut earlier = HashSet::with_capacity(ids.clone().count());
        ids.all(|id| is_valid(id) && earlier.insert(id))
    }
}

fn is_valid(id: &str) -> bool {
    !id.is_empty() && id.len() <= CallIds::MAX_LEN
}
