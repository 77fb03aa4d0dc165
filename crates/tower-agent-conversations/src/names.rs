use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use crate::lock::lock;

/// The places of names in a list that only grows, so that a turn need not go through all of it.
///
/// Clones of the list share it, and each of them may grow in another way: a place that is found may
/// be that of another clone. Look there, and take it only if the item has the name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<BTreeMap<Arc<str>, Vec<usize>>>>);

impl Names {
    /// Notes that the item at this place has this name.
    pub(crate) fn note(&self, name: Arc<str>, place: usize) {
        let mut names = lock(&self.0);
        let places = names.entry(name).or_default();
        // Another clone may have put its own item there.
        if let Err(at) = places.binary_search(&place) {
            places.insert(at, place);
        }
    }

    /// Returns the places of a name, in ascending order.
    pub(crate) fn places(&self, name: &str) -> Vec<usize> {
        lock(&self.0).get(name).cloned().unwrap_or_default()
    }

    /// Returns whether the function accepts a place of a name that begins like this.
    pub(crate) fn any_like(&self, start: &str, mut is: impl FnMut(&str, usize) -> bool) -> bool {
        let names = lock(&self.0);
        let from = (Bound::Included(start), Bound::Unbounded);
        let mut like = names
            .range::<str, _>(from)
            .take_while(|(name, _)| name.starts_with(start));
        like.any(|(name, places)| places.iter().any(|place| is(name, *place)))
    }
}
