//! Maps whose keys come and go, such as users.

use std::collections::HashMap;

/// Says when a map is swept: once it has twice as many values as were left the last time.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    at: usize,
}

impl Sweep {
    /// Removes the values that are not needed, if it is time. Called before a value is added.
    pub(crate) fn make_room<K, V>(
        &mut self,
        map: &mut HashMap<K, V>,
        is_needed: impl Fn(&V) -> bool,
    ) {
        if map.len() >= self.at {
            map.retain(|_, value| is_needed(value));
            self.at = (map.len() * 2).max(64);
        }
    }
}
