use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::bounds::DEVICES;

/// A device that reads a thread, as its mark says.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Empty without a mark.
    id: Arc<str>,
    /// The number of entries of the log when the mark was made.
    entries: usize,
}

/// The devices that read a thread, and what each has received. Devices without a mark count as one.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Readers(Vec<Reader>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reader {
    id: Arc<str>,
    /// The number of entries of the log that it has received, or that were dropped before.
    received: usize,
}

impl Mark {
    /// Makes the mark of a device that receives a log of so many entries.
    pub(crate) fn make(entries: usize) -> String {
        format!("{}.{entries}", Uuid::new_v4())
    }

    /// Returns whether this is that of devices without one.
    pub(crate) fn is_none(&self) -> bool {
        self.id.is_empty()
    }

    /// Reads a mark. One that this crate has not made is none.
    pub(crate) fn read(mark: Option<&str>) -> Self {
        mark.and_then(Self::parse).unwrap_or(Self {
            id: "".into(),
            entries: usize::MAX,
        })
    }

    fn parse(mark: &str) -> Option<Self> {
        let (id, entries) = mark.split_once('.')?;
        // As it was made: a client could fill the thread with long ones.
        let id = Uuid::try_parse(id).ok()?;
        Some(Self {
            id: id.to_string().into(),
            entries: entries.parse().ok()?,
        })
    }
}

impl Readers {
    /// Returns the number of entries that a device has received. Without an entry of its own, a
    /// device with a mark has received those that the mark says, and one without a mark has
    /// received all.
    pub(crate) fn received(&self, mark: &Mark) -> usize {
        let mut readers = self.0.iter();
        let known = readers.find(|reader| reader.id == mark.id);
        known.map_or(mark.entries, |reader| reader.received)
    }

    /// Sets the number of entries that a device has received.
    pub(crate) fn set(&mut self, mark: &Mark, received: usize) {
        self.0.retain(|reader| reader.id != mark.id);
        self.0.push(Reader {
            id: mark.id.clone(),
            received,
        });
        // The device that has been away longest falls back to its mark, by which it has received
        // less.
        let marked = self.0.iter().position(|reader| !reader.id.is_empty());
        if let Some(oldest) = marked.filter(|_| self.0.len() > DEVICES) {
            self.0.remove(oldest);
        }
    }
}
