use std::sync::Arc;

/// Number of items in a chunk.
const CHUNK: usize = 32;

/// A list that only grows. Clones share all of it but the handles of the chunks, so adding to one
/// of them copies at most one chunk.
#[derive(Clone, Debug)]
pub(crate) struct List<T> {
    /// All but the last have [`CHUNK`] items.
    chunks: Vec<Arc<Vec<T>>>,
}

impl<T> List<T> {
    pub(crate) fn len(&self) -> usize {
        match self.chunks.split_last() {
            Some((last, full)) => full.len() * CHUNK + last.len(),
            None => 0,
        }
    }

    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / CHUNK)?.get(index % CHUNK)
    }

    pub(crate) fn last(&self) -> Option<&T> {
        self.chunks.last()?.last()
    }

    /// Returns the items from this one on.
    pub(crate) fn iter_from(&self, from: usize) -> impl Iterator<Item = &T> {
        let first = (from / CHUNK).min(self.chunks.len());
        let chunks = self.chunks[first..].iter().flat_map(|chunk| chunk.iter());
        chunks.skip(from - first * CHUNK)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

impl<T: PartialEq> List<T> {
    /// Returns the number of items that two lists have in common, from the first on.
    pub(crate) fn common(&self, other: &Self) -> usize {
        let chunks = self.chunks.iter().zip(&other.chunks);
        let shared = chunks.take_while(|(one, other)| Arc::ptr_eq(one, other));
        let from = (shared.count() * CHUNK).min(self.len());
        let pairs = self.iter_from(from).zip(other.iter_from(from));
        from + pairs.take_while(|(one, other)| one == other).count()
    }
}

impl<T: Clone> List<T> {
    pub(crate) fn push(&mut self, item: T) {
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK => Arc::make_mut(last).push(item),
            _ => self.chunks.push(Arc::new(vec![item])),
        }
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}
