//! Maps whose keys others choose, such as users.

use std::borrow::Borrow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use crate::bounds::MOST_KEYS;

/// The number of entries that stay when there are too many. Some room at once, so that the next
/// keys do not look at all entries again.
const KEPT: usize = MOST_KEYS / 10 * 9;

/// Values by key, at most [`MOST_KEYS`] beside those that calls use: the least recently used go.
#[derive(Debug)]
pub(crate) struct Keyed<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The number of entries at which those that are not needed are removed: twice as many as were
    /// left the last time.
    sweep_at: usize,
    /// Counts the uses of all entries.
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// The number of its last use.
    used: u64,
}

/// The purpose for which an entry is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: a new one would be the same.
    Nothing,
    /// It remembers something.
    Memory,
    /// Calls use it, and it must stay.
    Calls,
}

impl<K, V> Default for Keyed<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            sweep_at: 0,
            uses: 0,
        }
    }
}

impl<K: Eq + Hash, V> Keyed<K, V> {
    /// Returns a value, which does not count as a use.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// Returns a value, which is a use of it.
    pub(crate) fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let entry = self.entries.get_mut(key)?;
        self.uses += 1;
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// Sets the value of a key. If it is time, removes the entries that are not needed.
    pub(crate) fn insert(&mut self, key: K, value: V, need: impl Fn(&V) -> Need) {
        self.make_room(need);
        self.uses += 1;
        let used = self.uses;
        self.entries.insert(key, Entry { value, used });
    }

    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.entries.remove(key);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// Returns the entries of the highest rank, at most so many, the highest first; of those with
    /// the same rank the ones that were used last.
    pub(crate) fn highest<T: Ord>(&self, most: usize, rank: impl Fn(&V) -> T) -> Vec<(&K, &V)> {
        let ranked = self.entries.iter();
        let ranked =
            ranked.map(|(key, entry)| (Reverse((rank(&entry.value), entry.used)), key, entry));
        let mut ranked: Vec<_> = ranked.collect();
        if most < ranked.len() {
            ranked.select_nth_unstable_by(most, |(one, ..), (other, ..)| one.cmp(other));
            ranked.truncate(most);
        }
        ranked.sort_unstable_by(|(one, ..), (other, ..)| one.cmp(other));
        let entries = ranked.into_iter();
        entries.map(|(_, key, entry)| (key, &entry.value)).collect()
    }

    fn make_room(&mut self, need: impl Fn(&V) -> Need) {
        if self.entries.len() < self.sweep_at {
            return;
        }
        self.entries
            .retain(|_, entry| need(&entry.value) != Need::Nothing);
        if self.entries.len() > KEPT {
            self.forget(self.entries.len() - KEPT, &need);
        }
        let left = self.entries.len();
        self.sweep_at = if left > KEPT {
            left + MOST_KEYS - KEPT
        } else {
            (left * 2).clamp(64, MOST_KEYS)
        };
    }

    /// Forgets up to this many of the entries that no call uses, the least recently used first.
    fn forget(&mut self, number: usize, need: impl Fn(&V) -> Need) {
        let is_idle = |entry: &Entry<V>| need(&entry.value) == Need::Memory;
        let idle = self.entries.values().filter(|entry| is_idle(entry));
        let mut idle: Vec<u64> = idle.map(|entry| entry.used).collect();
        let number = number.min(idle.len());
        let Some(last) = number.checked_sub(1) else {
            return;
        };
        let (_, last, _) = idle.select_nth_unstable(last);
        let last = *last;
        self.entries
            .retain(|_, entry| entry.used > last || !is_idle(entry));
        tracing::warn!(
            forgotten = number,
            most = MOST_KEYS,
            "too many keys: what the least recently used ones had is forgotten"
        );
    }
}
