//! A set of entries of a thread.

/// Entries of a log, by index. A conversation has nearly all of them, so it is a list of flags: to
/// go through it costs little, and each turn does so.
#[derive(Clone, Debug, Default)]
pub(crate) struct EntrySet(Vec<bool>);

impl EntrySet {
    pub(crate) fn insert(&mut self, index: usize) {
        if index >= self.0.len() {
            self.0.resize(index + 1, false);
        }
        self.0[index] = true;
    }

    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(is_in) = self.0.get_mut(index) {
            *is_in = false;
        }
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|is_in| *is_in)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// Returns the indices in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = usize> {
        let flags = self.0.iter().enumerate();
        flags.filter_map(|(index, is_in)| is_in.then_some(index))
    }
}

impl PartialEq for EntrySet {
    fn eq(&self, other: &Self) -> bool {
        // One may have room for more.
        self.iter().eq(other.iter())
    }
}

impl FromIterator<usize> for EntrySet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = Self::default();
        for index in indices {
            set.insert(index);
        }
        set
    }
}
